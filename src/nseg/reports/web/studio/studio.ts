/** The studio: click edges and nodes off and on, add edges, and see at once what the model says. */

import { h, replaceContent, svg, type Child } from "../src/dom";
import { onTheme, start as startTheme, theme, toggle } from "../src/theme";
import { atLeast, number } from "../src/words";

interface Edits {
  removed: [number, number][];
  added: [number, number][];
  hidden: number[];
}

interface View {
  output: number;
  outputs: number;
  target: number | null;
  nodes: [number, number, number, string][];
  edges: [number, number][];
  hidden_nodes: number;
  classes: string[];
  predicted: number;
  probabilities: number[];
}

interface Says {
  predicted: number;
  probabilities: number[];
}

const SIZE = 620;
const MARGIN = 30;
const NONE: Edits = { removed: [], added: [], hidden: [] };

let view: View | null = null;
let steps: Edits[] = [NONE];
let step = 0;
let says: Says | null = null;
let kept: [number, number][] = [];
let adding: number | "first" | null = null;
let asking: AbortController | null = null;

const message = h("p", { role: "status", "aria-live": "polite", class: "note" });
const answer = h("section", { "aria-label": "What the model says" });
const canvas = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "studio-graph", role: "group", "aria-label": "The graph: edges and nodes can be switched off and on" });
const output = h("input", { type: "number", min: 0, id: "output", change: () => void open(Number(output.value)) });
const target = h("select", { id: "target", "aria-label": "Class" });
const undo = h("button", { type: "button", click: () => move(-1) }, "Undo");
const redo = h("button", { type: "button", click: () => move(1) }, "Redo");
const join = h("button", { type: "button", "aria-pressed": "false", click: () => (startAdding(adding === null ? "first" : null), draw()) }, "Add an edge");

/** Ask the server; a newer question withdraws the one before. */
async function ask<T>(name: string, body: object): Promise<T | null> {
  asking?.abort();
  const mine = (asking = new AbortController());
  try {
    const response = await fetch(name, { method: "POST", body: JSON.stringify(body), signal: mine.signal });
    const found = (await response.json()) as T & { error?: string };
    if (found.error === undefined) return found;
    message.textContent = found.error;
  } catch (error) {
    if (!mine.signal.aborted) message.textContent = "The studio does not answer. Is it still running?";
  }
  return null;
}

const edits = (): Edits => steps[step] ?? NONE;
const same = ([a, b]: readonly [number, number], [c, d]: readonly [number, number]): boolean => a === c && b === d;
const without = (pairs: [number, number][], pair: [number, number]): [number, number][] => pairs.filter((one) => !same(one, pair));

async function open(number: number): Promise<void> {
  message.textContent = "Loading…";
  const found = await ask<View>("view", { output: number });
  if (found === null) return;
  [view, steps, step, kept, says] = [found, [NONE], 0, [], found];
  output.value = String(found.output);
  output.max = String(found.outputs - 1);
  replaceContent(target, ...found.classes.map((name, n) => h("option", { value: n }, name)));
  message.textContent = found.hidden_nodes ? `${found.hidden_nodes} nodes further away are not drawn.` : "";
  startAdding(null);
  draw();
}

/** Make a change, ask the model, and remember the step. */
async function change(next: Edits): Promise<void> {
  steps = [...steps.slice(0, step + 1), next];
  step += 1;
  await predict();
}

function move(by: number): void {
  step = Math.min(Math.max(step + by, 0), steps.length - 1);
  void predict();
}

async function predict(): Promise<void> {
  draw();
  if (view === null) return;
  const found = await ask<Says>("predict", { output: view.output, edits: edits() });
  if (found === null) return;
  says = found;
  message.textContent = "";
  draw();
}

async function explain(): Promise<void> {
  if (view === null) return;
  message.textContent = "Explaining…";
  const found = await ask<{ kept: [number, number][]; pns?: number }>("explain", { output: view.output, edits: edits() });
  if (found === null) return;
  kept = found.kept;
  message.textContent = `The explanation keeps ${kept.length} edges${found.pns === undefined ? "" : `, PNS at least ${atLeast(found.pns)}`}.`;
  draw();
}

async function smallest(wanted: number | null): Promise<void> {
  if (view === null) return;
  message.textContent = "Searching…";
  const found = await ask<Says & { found: boolean; edits: Edits }>("change", { output: view.output, edits: edits(), target: wanted });
  if (found === null) return;
  if (!found.found) {
    message.textContent = "No few edges were found whose removal does it.";
    return;
  }
  const count = found.edits.removed.length - edits().removed.length;
  says = found;
  await change({ removed: found.edits.removed, added: found.edits.added, hidden: found.edits.hidden });
  message.textContent = `Without ${count} more ${count === 1 ? "edge" : "edges"} the model says ${view.classes[found.predicted] ?? ""}.`;
}

function toggleEdge(pair: [number, number]): void {
  const now = edits();
  if (now.added.some((one) => same(one, pair))) void change({ ...now, added: without(now.added, pair) });
  else if (now.removed.some((one) => same(one, pair))) void change({ ...now, removed: without(now.removed, pair) });
  else void change({ ...now, removed: [...now.removed, pair] });
}

function toggleNode(node: number): void {
  const now = edits();
  if (adding === "first") startAdding(node);
  else if (adding !== null) {
    const pair: [number, number] = [Math.min(adding, node), Math.max(adding, node)];
    const there = [...(view?.edges ?? []), ...now.added].some((one) => same(one, pair));
    startAdding(null);
    if (node === pair[0] && node === pair[1]) message.textContent = "An edge joins two different nodes.";
    else if (there) message.textContent = "This edge is there already; click it to switch it.";
    else return void change({ ...now, added: [...now.added, pair] });
  } else return void change({ ...now, hidden: now.hidden.includes(node) ? now.hidden.filter((one) => one !== node) : [...now.hidden, node] });
  draw();
}

function startAdding(state: typeof adding): void {
  adding = state;
  join.setAttribute("aria-pressed", String(state !== null));
  if (state === "first") message.textContent = "Choose the first node.";
  else if (state !== null) message.textContent = "Choose the second node.";
}

/** A part of the drawing that is switched by mouse or keyboard. */
function control(label: string, on: boolean, act: () => void, ...shapes: SVGElement[]): SVGElement {
  const press = (event: Event): void => {
    const key = (event as KeyboardEvent).key;
    if (key === "Enter" || key === " ") (event.preventDefault(), act());
  };
  return svg("g", { role: "checkbox", tabindex: 0, "aria-checked": String(on), "aria-label": label, click: act, keydown: press }, svg("title", {}, label), ...shapes);
}

function draw(): void {
  if (view === null) return;
  const focused = document.activeElement?.getAttribute("aria-label");
  const at = (value: number): number => MARGIN + value * (SIZE - 2 * MARGIN);
  const place = new Map(view.nodes.map(([id, x, y, name]) => [id, { x: at(x), y: at(y), name, label: name === String(id) ? name : `${name} ${id}` }]));
  const now = edits();
  const shapes: SVGElement[] = [];
  for (const pair of [...view.edges, ...now.added]) {
    const [a, b] = [place.get(pair[0]), place.get(pair[1])];
    if (!a || !b) continue;
    const on = !now.removed.some((one) => same(one, pair));
    const line = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
    const names = ["edge", on ? "on" : "off", kept.some((one) => same(one, pair)) ? "kept" : ""].join(" ");
    shapes.push(control(`edge ${a.label} - ${b.label}`, on, () => toggleEdge(pair), svg("line", { ...line, class: "touch" }), svg("line", { ...line, class: names })));
  }
  for (const [id, { x, y, name, label }] of place) {
    const on = !now.hidden.includes(id);
    const names = ["node", on ? "on" : "off", id === view.target ? "target" : "", id === adding ? "chosen" : ""].join(" ");
    shapes.push(control(`node ${label}`, on, () => toggleNode(id), svg("circle", { cx: x, cy: y, r: 11, class: names }), svg("text", { x, y: y + 4, "text-anchor": "middle" }, name)));
  }
  canvas.replaceChildren(...shapes);
  [...canvas.querySelectorAll<SVGElement>("g")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
  undo.toggleAttribute("disabled", step === 0);
  redo.toggleAttribute("disabled", step === steps.length - 1);
  drawAnswer(view);
}

function drawAnswer(shown: View): void {
  const rows = shown.classes.map((name, n) => {
    const [p, before] = [says?.probabilities[n] ?? 0, shown.probabilities[n] ?? 0];
    return h("tr", { class: n === says?.predicted ? "best" : "" }, h("th", { scope: "row" }, name), h("td", { class: "numeric" }, number(p)), h("td", { class: "numeric" }, number(before)), h("td", {}, h("meter", { min: 0, max: 1, value: p, "aria-label": name })));
  });
  const changed = says !== null && says.predicted !== shown.predicted;
  const sentence = `The model says ${shown.classes[says?.predicted ?? 0] ?? ""}${changed ? `, and not ${shown.classes[shown.predicted] ?? ""} as on the graph without changes` : ""}.`;
  const head = h("tr", {}, ...["class", "p now", "p before", ""].map((text) => h("th", { scope: "col" }, text)));
  replaceContent(answer, h("p", { id: "says", role: "status", "aria-live": "polite" }, sentence), h("table", {}, h("caption", {}, "Probabilities"), h("thead", {}, head), h("tbody", {}, ...rows)));
}

/** The session as a file that can be opened again. */
function save(): void {
  const content = JSON.stringify({ nseg: "studio", output: view?.output ?? 0, step, steps }, null, 1);
  const link = h("a", { href: URL.createObjectURL(new Blob([content], { type: "application/json" })), download: "studio.json" });
  link.click();
  URL.revokeObjectURL(link.href);
}

async function load(file: File | undefined): Promise<void> {
  try {
    const stored = JSON.parse((await file?.text()) ?? "") as { nseg: string; output: number; step: number; steps: Edits[] };
    if (stored.nseg !== "studio") throw new Error("not a session");
    await open(stored.output);
    [steps, step] = [stored.steps, stored.step];
    await predict();
  } catch {
    message.textContent = "The file must be a session that the studio saved.";
  }
}

function header(): HTMLElement {
  const dark = h("button", { type: "button", click: toggle });
  onTheme(() => (dark.textContent = theme() === "dark" ? "Light" : "Dark"));
  return h("header", {}, h("h1", {}, "nseg studio"), h("nav", { "aria-label": "Page" }, dark));
}

const file: HTMLInputElement = h("input", { type: "file", accept: "application/json", id: "file", change: () => void load(file.files?.[0]) });
const controls: Child[] = [
  h("div", { class: "field" }, h("label", { for: "output" }, "Output"), output),
  h("div", { class: "buttons" }, undo, redo, join, h("button", { type: "button", click: () => void change(NONE) }, "Start again")),
  h("div", { class: "buttons" }, h("button", { type: "button", click: () => void explain() }, "Explain this"), h("button", { type: "button", click: () => void smallest(null) }, "Smallest change")),
  h("div", { class: "buttons" }, h("button", { type: "button", click: () => void smallest(Number(target.value)) }, "Why not this class?"), target),
  h("div", { class: "buttons" }, h("button", { type: "button", click: save }, "Save"), h("label", { for: "file" }, "Open a session"), file),
];
const side = h("aside", { class: "studio-side" }, ...controls, message, answer);
document.getElementById("page")?.replaceChildren(header(), h("main", { class: "studio" }, side, canvas as unknown as HTMLElement));
startTheme();
void open(Number(new URLSearchParams(location.hash.slice(1)).get("output") ?? 0));
