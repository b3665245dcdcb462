/** The drawing: edges and nodes that are switched by mouse, touch or keyboard. */

import { svg } from "../src/dom";
import { groupColour, typeShape } from "../src/groups";
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
  /** Whether all edges that can matter are drawn. */
  complete: boolean;
  cut: [number, number, number] | null;
  features: number;
  /** Names of features, by type of node; those of all nodes if there are no types. */
  feature_names: string[][];
  /** Types of nodes, how many features each has, and the type of each drawn node; none if there are no types. */
  types: string[];
  widths: number[];
  node_types: number[];
  /** Kinds of edges: what they say, and the types of nodes that they join. */
  kinds: { kind: number; name: string; ends: [number, number] }[];
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
  /** Whether hydrogen atoms are drawn that nothing was done to. */
  hydrogens: boolean;
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

/** What a node of the graph is called. */
export function nodeWord(view: View): string {
  return view.molecule ? "atom" : "node";
}

/** What an edge of the graph is called. */
export function edgeWord(view: View): string {
  return view.molecule ? "bond" : "edge";
}

/** Type of a node; -1 if there are no types. */
export function nodeType(view: View, id: number): number {
  return view.node_types[view.nodes.findIndex(([n]) => n === id)] ?? -1;
}

/** Number of features of a node that can be changed. */
export function nodeWidth(view: View, id: number): number {
  return view.types.length ? (view.widths[nodeType(view, id)] ?? 0) : view.features;
}

/** What a feature of a node is called. */
export function featureLabel(view: View, id: number, feature: number): string {
  return view.feature_names[Math.max(nodeType(view, id), 0)]?.[feature] ?? `feature ${feature}`;
}

/** Name of an edge: both ends, and between them what it says if there are types. */
export function edgeLabel(view: View, [a, b, number = 0]: Pair): string {
  const kind = view.kinds.find((one) => one.kind === number);
  if (!kind) return `${nodeLabel(view, a)} - ${nodeLabel(view, b)}`;
  const [first, second] = nodeType(view, a) === kind.ends[0] ? [a, b] : [b, a];
  return `${nodeLabel(view, first)} - ${kind.name} - ${nodeLabel(view, second)}`;
}

/** Kinds of edges that can join two nodes; 0 if there are no types. */
export function kindsBetween(view: View, a: number, b: number): number[] {
  if (!view.types.length) return [0];
  const [s, t] = [nodeType(view, a), nodeType(view, b)];
  return view.kinds.filter(({ ends: [c, d] }) => (s === c && t === d) || (s === d && t === c)).map(({ kind }) => kind);
}

const CORNERS: Record<string, [number, number][]> = {
  rectangle: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
  triangle: [[0, -1.25], [1.2, 0.9], [-1.2, 0.9]],
  diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]],
};

/** A node's shape; a type of nodes has its own. */
function nodeShape(type: number, x: number, y: number, radius: number, classes: string): SVGElement {
  const shape = typeShape(type);
  if (shape === "ellipse") return svg("circle", { cx: x, cy: y, r: radius, class: classes });
  const regular = { pentagon: 5, hexagon: 6, octagon: 8, star: 10 }[shape] ?? 4;
  const ring = Array.from({ length: regular }, (_, n): [number, number] => {
    const [angle, far] = [(2 * Math.PI * n) / regular, shape === "star" && n % 2 ? 0.6 : 1.15];
    return [far * Math.sin(angle), -far * Math.cos(angle)];
  });
  const points = (CORNERS[shape] ?? ring).map(([a, b]) => `${x + a * radius},${y + b * radius}`).join(" ");
  return svg("polygon", { points, class: classes });
}

/** A node's shape in the colour of its type. */
function colouredShape(type: number, x: number, y: number, radius: number, classes: string): SVGElement {
  const shape = nodeShape(type, x, y, radius, classes);
  if (type >= 0 && !classes.includes(" off")) [shape.style.fill, shape.style.fillOpacity] = [groupColour(type), "0.5"];
  return shape;
}

/** A small picture of a type of nodes, for the legend. */
export function typeSwatch(type: number): SVGElement {
  return svg("svg", { viewBox: "-14 -14 28 28", class: "type-swatch studio-graph", "aria-hidden": "true" }, colouredShape(type, 0, 0, 10, "node on"));
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

/** How far each of several lines between the same nodes is beside the middle. */
function parallel(pairs: Pair[]): number[] {
  const seen = new Map<string, number[]>();
  pairs.forEach(([a, b], index) => seen.set(`${a} ${b}`, [...(seen.get(`${a} ${b}`) ?? []), index]));
  const found = pairs.map(() => 0);
  for (const some of seen.values()) some.forEach((index, n) => (found[index] = n - (some.length - 1) / 2));
  return found;
}

/** A line some pixels beside another. */
function moved(line: Line, by: number): Line {
  const length = Math.hypot(line.x2 - line.x1, line.y2 - line.y1) || 1;
  const [dx, dy] = [(-(line.y2 - line.y1) * by) / length, ((line.x2 - line.x1) * by) / length];
  return { x1: line.x1 + dx, y1: line.y1 + dy, x2: line.x2 + dx, y2: line.y2 + dy };
}

/** What a node is called for those who do not see it. */
function nodeText(view: View, id: number, label: string): string {
  const kind = view.types[nodeType(view, id)] ?? nodeWord(view);
  return label.startsWith(`${kind} `) ? label : `${kind} ${label}`;
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

/** Hydrogen atoms to leave out: those that are neither kept, nor changed, nor chosen. */
function leftOut(view: View, { edits, explanation, chosen, selected, hydrogens }: Shown): Set<number> {
  if (hydrogens || !view.molecule) return new Set();
  const used = [...edits.removed, ...edits.added, ...(explanation?.kept ?? []), ...edits.values].flatMap(([a, b]) => [a, b]);
  const busy = new Set([...used, ...edits.hidden, ...(explanation?.kept_nodes ?? []), chosen, selected]);
  return new Set(view.nodes.filter(([id, , , , name]) => name === "H" && !busy.has(id)).map(([id]) => id));
}

function draw(canvas: SVGElement, view: View, shown: Shown, actions: Actions): void {
  const focused = document.activeElement?.getAttribute("aria-label");
  const at = (value: number): number => MARGIN + value * (SIZE - 2 * MARGIN);
  const absent = leftOut(view, shown);
  const drawn = view.nodes.filter(([id]) => !absent.has(id));
  const place = new Map(drawn.map(([id, x, y, label, name]) => [id, { x: at(x), y: at(y), name, label }]));
  const { edits, explanation } = shown;
  const shapes: SVGElement[] = [];
  const beside = parallel([...view.edges, ...edits.added]);
  for (const [index, pair] of [...view.edges, ...edits.added].entries()) {
    const [a, b] = [place.get(pair[0]), place.get(pair[1])];
    if (!a || !b) continue;
    const [on, kept] = [!holds(edits.removed, pair), holds(explanation?.kept ?? [], pair)];
    const line = moved({ x1: a.x, y1: a.y, x2: b.x, y2: b.y }, 8 * (beside[index] ?? 0));
    const classes = ["edge", on ? "on" : "off", kept ? "kept" : "", holds(edits.added, pair) ? "new" : ""].join(" ");
    const name = `${edgeWord(view)} ${edgeLabel(view, pair)}`;
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
    const number = name === String(id) || !view.molecule ? [] : [svg("text", { x: x + radius, y: y + radius + 2, class: "number" }, String(id))];
    const type = nodeType(view, id);
    const below = name.length > 4 && !view.molecule; // a long name does not fit into the node
    const text = svg("text", { x, y: below ? y + 2 * radius : y + 4, "text-anchor": "middle", class: below ? "below" : view.molecule ? `atom ${name}` : "" }, name);
    const group = control(nodeText(view, id, label), on, () => actions.node(id), ...(type >= 0 ? [nodeShape(type, x, y, radius, "backing")] : []), colouredShape(type, x, y, radius, classes), text, ...number);
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
