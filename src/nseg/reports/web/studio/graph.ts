/** The drawing: edges and nodes that are switched by mouse, touch or keyboard. */

import { svg } from "../src/dom";
import { holds, type Edits, type Explanation, type Pair } from "./steps";

export interface View {
  output: number;
  outputs: number;
  subject: string;
  target: number | null;
  /** Number, place, a name of its own, and what is written at it: "N7" and "N" for an atom. */
  nodes: [number, number, number, string, string][];
  edges: Pair[];
  /** Orders of the bonds of a molecule; none for other graphs. */
  orders: number[];
  molecule: boolean;
  hidden_nodes: number;
  hidden_edges: number;
  cut: [number, number, number] | null;
  features: number;
  feature_names: string[];
  classes: string[];
  true_class: number | null;
  predicted: number;
  probabilities: number[];
}

export interface Shown {
  edits: Edits;
  explanation: Explanation | null;
  chosen: number | null;
  selected: number | null;
}

export interface Actions {
  edge(pair: Pair): void;
  node(node: number): void;
}

const SIZE = 620;
const MARGIN = 30;

/** Name of a node, which no other node has. */
export function nodeLabel(view: View, id: number): string {
  return view.nodes.find(([n]) => n === id)?.[3] ?? String(id);
}

/** What an edge of the graph is called. */
export function edgeWord(view: View): string {
  return view.molecule ? "bond" : "edge";
}

interface Line {
  x1: number;
  y1: number;
  x2: number;
  y2: number;
}

/** The lines of a bond side by side; the second of an aromatic one is dashed. */
function strokes(line: Line, order: number, classes: string): SVGElement[] {
  const length = Math.hypot(line.x2 - line.x1, line.y2 - line.y1) || 1;
  const count = Math.max(1, Math.round(order));
  return Array.from({ length: count }, (_, n) => {
    const shift = (6 * (n - (count - 1) / 2)) / length;
    const [dx, dy] = [-(line.y2 - line.y1) * shift, (line.x2 - line.x1) * shift];
    const dashed = n > 0 && order > 1 && order < 2 ? " aromatic" : "";
    return svg("line", { x1: line.x1 + dx, y1: line.y1 + dy, x2: line.x2 + dx, y2: line.y2 + dy, class: classes + dashed });
  });
}

/** The drawing and a function that draws it anew. */
export function makeCanvas(actions: Actions): [SVGElement, (view: View, shown: Shown) => void] {
  const label = "The graph. Arrow keys move along its edges and nodes, Enter switches one.";
  const canvas = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "studio-graph", role: "group", "aria-label": label, keydown: (event) => move(canvas, event as KeyboardEvent) });
  return [canvas, (view, shown) => draw(canvas, view, shown, actions)];
}

/** One element of the drawing can be reached by the tabulator; arrow keys go to the others. */
function move(canvas: SVGElement, event: KeyboardEvent): void {
  const all = [...canvas.querySelectorAll<SVGElement>("g")];
  const at = all.indexOf(document.activeElement as SVGElement);
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  const next = to === undefined ? undefined : all[(to + all.length) % all.length];
  if (at < 0 || !next) return;
  event.preventDefault();
  all[at]?.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

function control(label: string, on: boolean, act: () => void, ...shapes: SVGElement[]): SVGElement {
  const press = (event: Event): void => {
    const key = (event as KeyboardEvent).key;
    if (key === "Enter" || key === " ") (event.preventDefault(), act());
  };
  return svg("g", { role: "checkbox", tabindex: -1, "aria-checked": String(on), "aria-label": label, click: act, keydown: press }, svg("title", {}, label), ...shapes);
}

function draw(canvas: SVGElement, view: View, shown: Shown, actions: Actions): void {
  const focused = document.activeElement?.getAttribute("aria-label");
  const at = (value: number): number => MARGIN + value * (SIZE - 2 * MARGIN);
  const place = new Map(view.nodes.map(([id, x, y, label, name]) => [id, { x: at(x), y: at(y), name, label }]));
  const { edits, explanation } = shown;
  const shapes: SVGElement[] = [];
  for (const [index, pair] of [...view.edges, ...edits.added].entries()) {
    const [a, b] = [place.get(pair[0]), place.get(pair[1])];
    if (!a || !b) continue;
    const [on, kept] = [!holds(edits.removed, pair), holds(explanation?.kept ?? [], pair)];
    const line = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
    const classes = ["edge", on ? "on" : "off", kept ? "kept" : "", holds(edits.added, pair) ? "new" : ""].join(" ");
    const name = `${edgeWord(view)} ${a.label} - ${b.label}`;
    const band = kept && view.molecule ? [svg("line", { ...line, class: "band" })] : [];
    const group = control(name, on, () => actions.edge(pair), svg("line", { ...line, class: "touch" }), ...band, ...strokes(line, view.orders[index] ?? 1, classes));
    if (kept) group.setAttribute("aria-description", "kept by the explanation");
    shapes.push(group);
  }
  const radius = view.nodes.length > 60 ? 8 : 11;
  for (const [id, { x, y, name, label }] of place) {
    const on = !edits.hidden.includes(id);
    const changed = edits.values.some(([n]) => n === id);
    const classes = ["node", on ? "on" : "off", id === view.target ? "target" : "", id === shown.chosen ? "chosen" : "", id === shown.selected ? "picked" : "", changed ? "changed" : "", explanation?.kept_nodes?.includes(id) ? "kept" : ""].join(" ");
    const number = name === String(id) ? [] : [svg("text", { x: x + radius, y: y + radius + 2, class: "number" }, String(id))];
    const group = control(`${view.molecule ? "atom" : "node"} ${label}`, on, () => actions.node(id), svg("circle", { cx: x, cy: y, r: radius, class: classes }), svg("text", { x, y: y + 4, "text-anchor": "middle" }, name), ...number);
    const notes = [id === view.target ? "explained" : "", changed ? "with other values" : "", explanation?.kept_nodes?.includes(id) ? "kept by the explanation" : ""].filter(Boolean);
    if (notes.length) group.setAttribute("aria-description", notes.join(", "));
    shapes.push(group);
  }
  const heights = [...place.values()].map(({ y }) => y);
  const top = Math.min(...heights) - MARGIN;
  canvas.setAttribute("viewBox", `0 ${top} ${SIZE} ${Math.max(Math.max(...heights) + MARGIN - top, SIZE / 3)}`);
  canvas.replaceChildren(...shapes);
  const current = shapes.find((one) => one.getAttribute("aria-label") === focused);
  (current ?? shapes[0])?.setAttribute("tabindex", "0");
  current?.focus();
}
