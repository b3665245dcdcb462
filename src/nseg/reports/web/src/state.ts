/** What the page knows apart from what it draws: rows, filters, order, links, and what is kept. No DOM here. */

import type { Answer, Instance, Marks, Payload } from "./payload";
import { targetNames } from "./words";

/** One instance in the list, with the numbers of one method. */
export interface Row {
  id: number;
  target: number;
  /** Whether the prediction is right; null where the true class is not known. */
  right: boolean | null;
  pns: number | null;
  /** Edges kept, or nodes or features where only they are explained. */
  size: number | null;
  text: string;
}

export interface Filter {
  text: string;
  target: number | null;
  right: boolean | null;
  pns: Range;
  size: Range;
}

export interface Range {
  low: number | null;
  high: number | null;
}

export const EVERYTHING: Filter = {
  text: "",
  target: null,
  right: null,
  pns: { low: null, high: null },
  size: { low: null, high: null },
};

export function rightness(one: Instance): boolean | null {
  return one.predicted === null || one.label === null ? null : one.predicted === one.label;
}

export function rows(payload: Payload, method: number): Row[] {
  return payload.instances.map((one) => {
    const answer = one.answers[method] ?? null;
    const classes = [one.target, one.predicted, one.label].map((n) => (n === null ? "" : (payload.classes[n] ?? "")));
    return {
      id: one.id,
      target: one.target,
      right: rightness(one),
      pns: answer?.pns ?? null,
      size: answer && mainSize(answer),
      text: [one.id, ...targetNames(payload, one), ...classes].join(" ").toLowerCase(),
    };
  });
}

/** How many edges are kept; nodes where edges are not explained, features where nodes are not either. */
function mainSize(answer: Answer): number {
  const [lines, nodes, features] = answer.size;
  return answer.lines !== null ? lines : answer.nodes !== null ? nodes : features;
}

/** Rows that pass; each word of the text must be there, a number alone must be the instance's own. */
export function filtered(all: readonly Row[], filter: Filter): Row[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter(
    (row) =>
      words.every((word) => (/^\d+$/.test(word) ? String(row.id).startsWith(word) : row.text.includes(word))) &&
      (filter.target === null || row.target === filter.target) &&
      (filter.right === null || row.right === filter.right) &&
      within(row.pns, filter.pns) &&
      within(row.size, filter.size),
  );
}

function within(value: number | null, range: Range): boolean {
  if (range.low === null && range.high === null) return true;
  return value !== null && value >= (range.low ?? -Infinity) && value <= (range.high ?? Infinity);
}

export type Key = number | string | null;

/** Items in the order of a key, what is not known last, equals in the order they had. */
export function ordered<T>(items: readonly T[], key: (item: T) => Key, descending: boolean): T[] {
  const sign = descending ? -1 : 1;
  return [...items].sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}

/** The instance that a link points to; null for the overview. */
export function linked(hash: string): number | null {
  const text = new URLSearchParams(hash.replace(/^#/, "")).get("instance");
  return text !== null && /^\d+$/.test(text) ? Number(text) : null;
}

export function linkTo(id: number): string {
  return `#instance=${id}`;
}

/** Where the ranking is cut, or null for the explanation as it was found. */
export type Cut = number | null;

/** Which directions of a line are kept. */
export type Way = "both" | "there" | "back";

export interface Kept {
  lines: Map<number, Way>;
  nodes: Set<number>;
  features: Set<number>;
}

/** What is kept, on the lines and nodes that are drawn. */
export function kept(answer: Answer, cut: Cut): Kept {
  const there = among(answer.lines, cut);
  const back = answer.back === null ? there : among(answer.back, cut);
  const lines = new Map<number, Way>();
  for (const line of [...new Set([...there, ...back])].sort((a, b) => a - b)) {
    lines.set(line, !back.has(line) ? "there" : !there.has(line) ? "back" : "both");
  }
  return { lines, nodes: among(answer.nodes, cut), features: among(answer.features, cut) };
}

function among(marks: Marks | null, cut: Cut): Set<number> {
  if (marks === null) return new Set();
  return new Set(cut === null ? marks.kept : [...marks.stay.keys()].filter((place) => (marks.stay[place] ?? Infinity) <= cut));
}

/** How many lines are kept one way only although edges run both ways. */
export function oneWay(answer: Answer, found: Kept): number {
  const both = (line: number): boolean => (answer.lines?.weight[line] ?? -1) >= 0 && (answer.back?.weight[line] ?? -1) >= 0;
  return [...found.lines].filter(([line, way]) => way !== "both" && both(line)).length;
}

/** What the model says with what is kept, and without it. */
export interface Outcome {
  p_factual: number;
  p_complement: number;
  pns: number;
  pn: number;
  ps: number;
  /** Whether the class changes without what is kept (Fid+), and with it alone (Fid-); null where it is not known. */
  changes_without: boolean | null;
  changes_alone: boolean | null;
}

export function outcome(one: Instance, answer: Answer, cut: Cut, split: number[]): Outcome | null {
  const worlds = cut === null ? answer.worlds : (answer.stops.worlds?.[cut] ?? null);
  if (cut === null && answer.p_factual !== null && answer.p_complement !== null) {
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
