/** Light and dark colours: the setting of the system until the reader chooses. */

const system = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;
const listeners = new Set<() => void>();
let chosen: "light" | "dark" | null = null;

export function theme(): "light" | "dark" {
  return root.dataset["theme"] === "dark" ? "dark" : "light";
}

/** Call a listener whenever the colours change; the returned function unsubscribes it. */
export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function toggle(): void {
  chosen = theme() === "dark" ? "light" : "dark";
  apply();
}

export function start(): void {
  system.addEventListener("change", apply);
  addEventListener("beforeprint", () => paint("light"));
  addEventListener("afterprint", apply);
  apply();
}

function apply(): void {
  paint(chosen ?? (system.matches ? "dark" : "light"));
}

function paint(name: "light" | "dark"): void {
  root.dataset["theme"] = name;
  for (const listener of listeners) listener();
}

/** Value of a colour variable of the style sheet. */
export function colour(name: string): string {
  return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
}
