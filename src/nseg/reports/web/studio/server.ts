/** Questions to the studio's server; a newer question withdraws the one before. */

export interface Waiting {
  share: number;
  asked: number;
}

let asking: AbortController | null = null;

/** Withdraw the question that is being answered. */
export function withdraw(): void {
  asking?.abort();
}

async function post<T>(name: string, body: object, signal?: AbortSignal): Promise<T & { error?: string }> {
  const response = await fetch(name, { method: "POST", body: JSON.stringify(body), ...(signal ? { signal } : {}) });
  return (await response.json()) as T & { error?: string };
}

/** Ask the server; null if it does not answer or the question was withdrawn. `progress` is told how far the answer is. */
export async function ask<T>(name: string, body: object, fail: (message: string) => void, progress?: (waiting: Waiting) => void): Promise<T | null> {
  asking?.abort();
  const mine = (asking = new AbortController());
  const ticket = progress ? crypto.getRandomValues(new Uint32Array(2)).join("-") : "";
  let answered = false; // a report on the way may come after the answer, and must not replace its words
  const timer = progress ? setInterval(() => void report(ticket, (waiting) => answered || progress(waiting)), 250) : 0;
  try {
    const found = await post<T>(name, ticket ? { ...body, ticket } : body, mine.signal);
    if (found.error === undefined) return found;
    fail(found.error);
  } catch {
    if (!mine.signal.aborted) fail("The studio does not answer. Is it still running? Start it again and reload this page.");
  } finally {
    answered = true;
    clearInterval(timer);
    if (asking === mine) asking = null;
  }
  return null;
}

async function report(ticket: string, progress: (waiting: Waiting) => unknown): Promise<void> {
  try {
    const found = await post<Partial<Waiting>>("progress", { ticket });
    if (found.asked !== undefined) progress({ share: found.share ?? 0, asked: found.asked });
  } catch {
    // the question itself says if the server is gone
  }
}

/** Let the browser store a text as a file. */
export function download(content: string, type: string, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
