/** All numbers: what was explained, by which methods, and the quality over all instances. */

import { h, svg, type Child } from "./dom";
import type { Cell, Column, Curve, Method, Payload, Scalar, Summary } from "./payload";
import type { Key } from "./state";
import { SortableTable } from "./table";
import { atLeast, number } from "./words";

export function overview(payload: Payload): HTMLElement {
  return h(
    "article",
    {},
    h("h2", { id: "overview-title", tabindex: -1 }, "Numbers"),
    h("dl", { class: "facts" }, ...payload.facts.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)])),
    payload.summary && summary(payload.summary),
    h("p", { class: "note" }, "Means over all predictions. What each number says is explained below."),
    ...curves(payload.methods),
    glossary(),
    ...payload.methods.filter((method) => method.settings.length).map(settings),
  );
}

function summary(table: Summary): HTMLElement {
  const shown = new SortableTable<Cell[]>(
    table.title,
    table.columns.map((column, n) => ({
      name: column.name + (column.better ? { higher: " ↑", lower: " ↓" }[column.better] : ""),
      help: [column.help, column.better && `${column.better} is better`].filter(Boolean).join("; ") || null,
      numeric: table.rows.some((row) => typeof value(row[n] ?? null) === "number"),
      descending: column.better === "higher",
      key: (row: Cell[]): Key => value(row[n] ?? null),
      cell: (row: Cell[]): Child => cell(row[n] ?? null, column, holdsIntegers(table.rows, n) ? 0 : 3),
    })),
  );
  shown.show(table.rows);
  return h("section", { class: "summary" }, h("div", { class: "scroll" }, shown.element), ...table.notes.map((note) => h("p", { class: "note" }, note)));
}

function value(cell: Cell): Scalar {
  return cell !== null && typeof cell === "object" ? cell.value : cell;
}

/** Whether all numbers of a column are integers. */
function holdsIntegers(rows: Cell[][], column: number): boolean {
  return rows.every((row) => !(typeof value(row[column] ?? null) === "number") || Number.isInteger(value(row[column] ?? null)));
}

function cell(cell: Cell, column: Column, digits: number): Child {
  const write = (plain: number | null): string => (column.bound && plain !== null ? atLeast(plain) : number(plain, column.digits ?? digits));
  const text = (plain: Scalar): string => (typeof plain === "string" ? plain : write(plain));
  if (cell === null || typeof cell !== "object") return text(cell);
  const { low, high, paper, note } = cell;
  return h(
    "span",
    { title: note ?? null },
    text(cell.value),
    low !== undefined && high !== undefined && low !== null && high !== null && h("span", { class: "interval" }, `${text(low)} to ${text(high)}`),
    paper !== undefined && paper !== null && h("span", { class: "paper" }, `paper ${text(paper)}`),
  );
}

const LINES: [keyof Omit<Curve, "at">, string][] = [
  ["fid_plus", "Fid+"],
  ["fid_minus", "Fid−"],
  ["pns", "PNS"],
  ["sparsity", "sparsity"],
];

function curves(methods: Method[]): Child[] {
  const known = methods.filter((method) => method.curve !== null);
  if (!known.length) return [];
  return [
    h("h3", {}, "Quality by mask threshold"),
    h("p", {}, "Means over all instances if only elements with a weight above the threshold are kept. Flat lines mean that a method separates its weights well."),
    h("div", { class: "curves" }, ...known.map((method) => chart(method.name, method.curve as Curve))),
  ];
}

function chart(name: string, curve: Curve): HTMLElement {
  const [width, height, left, top, right, bottom] = [340, 206, 34, 16, 66, 26];
  const x = (t: number): number => left + ((t - 0.1) / 0.8) * (width - left - right);
  const y = (v: number): number => top + (1 - v) * (height - top - bottom);
  const ends = LINES.map(([key, text]) => ({ key, text, at: y(curve[key].at(-1) ?? 0) })).sort((a, b) => a.at - b.at);
  ends.forEach((end, n) => (end.at = Math.max(end.at, (ends[n - 1]?.at ?? -Infinity) + 13))); // keep labels from overlapping
  for (let n = ends.length - 1, lowest = height - bottom; n >= 0; n--, lowest -= 13) {
    const end = ends[n];
    if (end) end.at = Math.min(end.at, lowest); // and inside the picture
  }
  const ticks = [0, 0.5, 1].map((v) => svg("g", {}, svg("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v))));
  const below = [0.1, 0.5, 0.9].map((t) => svg("text", { x: x(t), y: height - bottom + 16, "text-anchor": "middle" }, String(t)));
  below.push(svg("text", { x: x(0.7), y: height - bottom + 16, "text-anchor": "middle" }, "threshold"));
  const lines = LINES.map(([key]) => svg("polyline", { class: `curve ${key}`, points: curve.at.map((t, n) => `${x(t).toFixed(1)},${y(curve[key][n] ?? 0).toFixed(1)}`).join(" ") }));
  const labels = ends.map(({ key, text, at }) => svg("text", { class: `name ${key}`, x: width - right + 6, y: at + 4 }, text));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}: means by threshold; the numbers are in the table below` }, ...ticks, ...below, ...lines, ...labels);
  const head = h("tr", {}, ...["threshold", ...LINES.map(([, text]) => text)].map((text) => h("th", { scope: "col" }, text)));
  const body = curve.at.map((t, n) => h("tr", {}, h("th", { scope: "row" }, String(t)), ...LINES.map(([key]) => h("td", { class: "numeric" }, key === "pns" ? atLeast(curve[key][n] ?? 0) : number(curve[key][n] ?? null)))));
  return h("figure", {}, h("figcaption", {}, name), picture, h("details", {}, h("summary", {}, "Numbers"), h("table", {}, h("caption", {}, `${name} by threshold`), h("thead", {}, head), h("tbody", {}, ...body))));
}

function glossary(): HTMLElement {
  const entry = (term: string, text: string): Child[] => [h("dt", {}, term), h("dd", {}, text)];
  return h(
    "details",
    { open: true },
    h("summary", {}, "What the numbers mean"),
    h(
      "dl",
      { class: "facts" },
      ...entry("verdict", "“Sufficient”: with the explanation alone, the model predicts the same class. “Necessary”: without the explanation, it predicts another. “Not explained”: it predicts the same without everything that could be in an explanation, so nothing of this kind can be necessary."),
      ...entry("explanation", "The part of the graph that a method gives as the reason for a prediction. Its weights rank all edges (or nodes, or features); the kept part is the explanation itself."),
      ...entry("direction", "An edge carries messages in both directions, and one direction can be enough. An arrow shows a direction that is kept alone. Where a method treats the two directions apart, each counts: such sizes are in directed edges. Only edges that can carry a message to the output count."),
      ...entry("features", "A method can keep single features of nodes. Then a node is filled by the share of its features that is kept, and all numbers are those of the kept features, not of whole nodes."),
      ...entry("p", "The model's probability of the explained class. A “world” is the graph with some parts left out: messages over these parts are multiplied by 0."),
      ...entry("Fid+", "The class changes if the explanation is left out. Over many instances: the share for which it changes. Higher is better."),
      ...entry("Fid−", "The class changes if only the explanation is kept. Lower is better."),
      ...entry("PNS", "Probability that the explanation is both necessary and sufficient. Its lower bound, always rounded down, is p with the explanation alone minus p without it, or 0 if that is negative."),
      ...entry("PN, PS", "Probability of necessity alone, and of sufficiency alone."),
      ...entry("sparsity", "Share of the edges within reach (each direction for itself; of nodes or features, if only these are masked) that the explanation leaves out. Fid+ and Fid− mean little without it: the whole graph is always sufficient."),
    ),
  );
}

function settings(method: Method): HTMLElement {
  return h(
    "details",
    {},
    h("summary", {}, `Settings of ${method.name}`),
    h("dl", { class: "facts" }, ...method.settings.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)])),
  );
}
