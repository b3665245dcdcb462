/** Steps of a session: changes of a graph, what the model says after them, and how one step differs from another. */

/** Two nodes that are joined, the smaller number first; in a graph with types also the kind of edge, if it is not 0. */
export type Pair = [number, number] | [number, number, number];

export interface Edits {
  removed: Pair[];
  added: Pair[];
  hidden: number[];
  values: [number, number, number][];
}

export interface Says {
  predicted: number;
  probabilities: number[];
}

export interface Explanation {
  kept: Pair[];
  kept_nodes: number[] | null;
  kept_features: Pair[] | null;
  words: string;
}

/** A step; the model's answer is missing if the person moved on before it came. */
export interface Step extends Partial<Says> {
  edits: Edits;
  explanation?: Explanation;
  words?: string;
}

export interface Session {
  nseg: "studio";
  output: number;
  step: number;
  steps: Step[];
  differs?: number[];
}

export const NONE: Edits = { removed: [], added: [], hidden: [], values: [] };

export const same = ([a, b, k = 0]: Readonly<Pair>, [c, d, l = 0]: Readonly<Pair>): boolean => a === c && b === d && k === l;
export const holds = (pairs: readonly Pair[], pair: Pair): boolean => pairs.some((one) => same(one, pair));
export const sorted = (a: number, b: number, kind = 0): Pair => (kind ? [Math.min(a, b), Math.max(a, b), kind] : [Math.min(a, b), Math.max(a, b)]);

function toggled<T>(all: readonly T[], one: T, equal: (a: T, b: T) => boolean): T[] {
  return all.some((other) => equal(one, other)) ? all.filter((other) => !equal(one, other)) : [...all, one];
}

/** Switch an edge: a new edge goes away, any other is removed or comes back. */
export function switchEdge(edits: Edits, pair: Pair): Edits {
  if (holds(edits.added, pair)) return { ...edits, added: toggled(edits.added, pair, same) };
  return { ...edits, removed: toggled(edits.removed, pair, same) };
}

/** Switch some edges together: off if any of them is on. */
export function switchEdges(edits: Edits, pairs: readonly Pair[]): Edits {
  const others = edits.removed.filter((pair) => !holds(pairs, pair));
  return { ...edits, removed: pairs.every((pair) => holds(edits.removed, pair)) ? others : [...others, ...pairs] };
}

/** Switch all features of a node; values of its own are forgotten. */
export function switchNode(edits: Edits, node: number): Edits {
  const values = edits.values.filter(([n]) => n !== node);
  return { ...edits, values, hidden: toggled(edits.hidden, node, (a, b) => a === b) };
}

/** Give a feature a value; the value that it has anyway is no change. */
export function setValue(edits: Edits, node: number, feature: number, value: number, before: number): Edits {
  const others = edits.values.filter(([n, f]) => n !== node || f !== feature);
  const given = edits.hidden.includes(node) ? 0 : before;
  return { ...edits, values: value === given ? others : [...others, [node, feature, value]] };
}

/** Value of a feature after the changes. */
export function valueOf(edits: Edits, node: number, feature: number, before: number): number {
  const given = edits.values.find(([n, f]) => n === node && f === feature);
  return given ? given[2] : edits.hidden.includes(node) ? 0 : before;
}

/** What nodes, edges and features are called. */
export interface Words {
  node: (n: number) => string;
  edge: (pair: Pair) => string;
  feature: (node: number, feature: number) => string;
  /** What an edge is: "edge" or "bond". */
  word: string;
}

/** What a step changes, one text per change. */
export function difference(before: Edits, after: Edits, { node, edge, feature, word }: Words): string[] {
  const new_ = <T>(a: readonly T[], b: readonly T[]): T[] => b.filter((one) => !a.some((other) => JSON.stringify(one) === JSON.stringify(other)));
  const kept = (n: number, f: number): boolean => after.values.some(([m, g]) => m === n && g === f);
  return [
    ...new_(before.removed, after.removed).map((pair) => `${word} ${edge(pair)} off`),
    ...new_(after.removed, before.removed).map((pair) => `${word} ${edge(pair)} on`),
    ...new_(before.added, after.added).map((pair) => `new ${word} ${edge(pair)}`),
    ...new_(after.added, before.added).map((pair) => `no new ${word} ${edge(pair)}`),
    ...new_(before.hidden, after.hidden).map((n) => `features of ${node(n)} off`),
    ...new_(after.hidden, before.hidden).map((n) => `features of ${node(n)} on`),
    ...new_(before.values, after.values).map(([n, f, value]) => `${feature(n, f)} of ${node(n)} is ${value}`),
    ...new_(after.values, before.values).filter(([n, f]) => !kept(n, f)).map(([n, f]) => `${feature(n, f)} of ${node(n)} as before`),
  ];
}

/** Few of many texts, in one line. */
export function few(texts: readonly string[], most = 3): string {
  return texts.length > most ? `${texts.slice(0, most).join(", ")} and ${texts.length - most} more` : texts.join(", ");
}
