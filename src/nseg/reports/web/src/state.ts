/** Logic of the page without the DOM: table rows, filters, sorting, links, kept elements and bounds. */

import type { MethodAnswer, Instance, MaskEntries, Payload, Verdict } from "./payload";
import { shortName, targetNames } from "./words";

/** One instance in the list, with the numbers of one method. */
export interface Row {
  id: number;
  name: string;
  target: number;
  verdict: Verdict | null;
  /** Whether the prediction is correct; null if the true class is unknown. */
  correct: boolean | null;
  pns: number | null;
  /** Number of kept edges; of nodes or features if edges are not masked. */
  size: number | null;
  text: string;
}

export interface Filter {
  text: string;
  target: number | null;
  verdict: Verdict | null;
  correct: boolean | null;
  pns: Range;
  size: Range;
}

export interface Range {
  low: number | null;
  high: number | null;
}

export const NO_FILTER: Filter = {
  text: "",
  target: null,
  verdict: null,
  correct: null,
  pns: { low: null, high: null },
  size: { low: null, high: null },
};

export function isCorrect(one: Instance): boolean | null {
  return one.predicted === null || one.label === null ? null : one.predicted === one.label;
}

export function rows(payload: Payload, method: number): Row[] {
  return payload.instances.map((one) => {
    const answer = one.answers[method] ?? null;
    const classes = [one.target, one.predicted, one.label].map((n) => (n === null ? "" : (payload.classes[n] ?? "")));
    return {
      id: one.id,
      name: shortName(payload, one),
      target: one.target,
      verdict: answer?.verdict ?? null,
      correct: isCorrect(one),
      pns: answer?.pns ?? null,
      size: answer && mainSize(answer),
      text: [one.id, one.name, ...targetNames(payload, one), ...classes, answer?.reason ?? ""].join(" ").toLowerCase(),
    };
  });
}

/** Number of kept edges; of nodes or features if edges are not masked. */
function mainSize(answer: MethodAnswer): number {
  const [edges, nodes, features] = answer.size;
  return answer.lines !== null ? edges : answer.nodes !== null && answer.cells === undefined ? nodes : features;
}

/** Rows that pass the filter. Each search word must occur in the row's text; a number must begin the instance's id. */
export function applyFilter(all: readonly Row[], filter: Filter): Row[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter(
    (row) =>
      words.every((word) => (/^\d+$/.test(word) ? String(row.id).startsWith(word) : row.text.includes(word))) &&
      (filter.verdict === null || row.verdict === filter.verdict) &&
      (filter.target === null || row.target === filter.target) &&
      (filter.correct === null || row.correct === filter.correct) &&
      within(row.pns, filter.pns) &&
      within(row.size, filter.size),
  );
}

function within(value: number | null, range: Range): boolean {
  if (range.low === null && range.high === null) return true;
  return value !== null && value >= (range.low ?? -Infinity) && value <= (range.high ?? Infinity);
}

export type Key = number | string | null;

/** How many rows have each verdict that occurs, in the given order. */
export function countVerdicts(all: readonly Row[], verdicts: readonly [Verdict, string][]): [Verdict, string, number][] {
  return verdicts
    .map(([key, name]): [Verdict, string, number] => [key, name, all.filter((row) => row.verdict === key).length])
    .filter(([, , count]) => count > 0);
}

/** Items sorted by a key: stable, with unknown keys (null) last in both directions. */
export function sorted<T>(items: readonly T[], key: (item: T) => Key, descending: boolean): T[] {
  const sign = descending ? -1 : 1;
  return [...items].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}

/** Id of the instance that a link points to; null if it points to none. */
export function linkedInstance(hash: string): number | null {
  const text = new URLSearchParams(hash.replace(/^#/, "")).get("instance");
  return text !== null && /^\d+$/.test(text) ? Number(text) : null;
}

export function linkTo(id: number): string {
  return `#instance=${id}`;
}

/** What is shown: a stop of the slider, or null for the explanation itself. */
export type Selection = number | null;

/** Which directions of a line are kept; forward is from its source to its end. */
export type Direction = "both" | "forward" | "backward";

export interface Kept {
  lines: Map<number, Direction>;
  /** Kept nodes, with the share of their features that is kept: 1 for a whole node. */
  nodes: Map<number, number>;
  features: Set<number>;
  /** Kept features of nodes, among those that are listed. */
  cells: Set<number>;
}

/** The kept lines, nodes and features among those that are drawn. */
export function kept(answer: MethodAnswer, selection: Selection): Kept {
  const forward = keptElements(answer.lines, selection);
  const backward = answer.back === null ? forward : keptElements(answer.back, selection);
  const lines = new Map<number, Direction>();
  for (const line of [...new Set([...forward, ...backward])].sort((a, b) => a - b)) {
    lines.set(line, !backward.has(line) ? "forward" : !forward.has(line) ? "backward" : "both");
  }
  const nodes = new Map([...keptElements(answer.nodes, selection)].map((node) => [node, keptShare(answer, node, selection)]));
  return { lines, nodes, features: keptElements(answer.features, selection), cells: keptElements(answer.cells, selection) };
}

/** Share of the features of a kept node that is kept. */
function keptShare({ cells, of }: MethodAnswer, node: number, selection: Selection): number {
  if (cells === undefined) return 1;
  const number = selection === null ? cells.number : (cells.number_at[selection] ?? []);
  return (number[node] ?? 0) / (cells.width?.[node] ?? of[2] / of[1]);
}

function keptElements(entries: MaskEntries | null | undefined, selection: Selection): Set<number> {
  if (!entries) return new Set();
  return new Set(selection === null ? entries.kept : [...entries.weight.keys()].filter((index) => Number.parseInt(entries.stay[index] ?? "z", 36) <= selection));
}

/** Number of lines that have edges in both directions, of which one is kept. */
export function countOneWay(answer: MethodAnswer, found: Kept): number {
  const both = (line: number): boolean => (answer.lines?.weight[line] ?? -1) >= 0 && (answer.back?.weight[line] ?? -1) >= 0;
  return [...found.lines].filter(([line, direction]) => direction !== "both" && both(line)).length;
}

/** Probabilities and bounds of the kept part. */
export interface Outcome {
  p_factual: number;
  p_complement: number;
  pns: number;
  pn: number;
  ps: number;
  /** Whether the class changes without the kept part (Fid+), and with it alone (Fid-); null if unknown. */
  changes_without: boolean | null;
  changes_alone: boolean | null;
}

export function outcome(one: Instance, answer: MethodAnswer, selection: Selection, split: number[]): Outcome | null {
  const worlds = selection === null ? answer.worlds : (answer.stops.worlds?.[selection] ?? null);
  if (selection === null && answer.p_factual !== null && answer.p_complement !== null) {
    const { p_factual, p_complement } = answer;
    const bounds = { pns: answer.pns ?? 0, pn: answer.pn ?? 0, ps: answer.ps ?? 0 };
    return { p_factual, p_complement, ...bounds, ...changes(one, worlds?.label) };
  }
  if (worlds === null) return null;
  const [p_factual = 0, ...events] = worlds.p;
  const p_complement = events.reduce((sum, p, n) => sum + p * (split[n] ?? 0), 0);
  const pns = Math.max(0, p_factual - p_complement);
  return {
    p_factual,
    p_complement,
    pns,
    pn: p_factual > 0 ? pns / p_factual : 0,
    ps: p_complement < 1 ? pns / (1 - p_complement) : 0,
    ...changes(one, worlds.label),
  };
}

function changes(one: Instance, label: number[] | undefined): Pick<Outcome, "changes_without" | "changes_alone"> {
  const from = one.predicted ?? one.target;
  const [alone, without] = label ?? [];
  return {
    changes_without: without === undefined ? null : without !== from,
    changes_alone: alone === undefined ? null : alone !== from,
  };
}
