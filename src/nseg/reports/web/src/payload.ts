/** What Python wrote into the page (payload.py); all numbers are rounded, all texts are data and never markup. */

export interface Payload {
  title: string;
  level: "node" | "edge" | "graph";
  molecules: boolean;
  facts: [string, string][];
  summary: Summary | null;
  methods: Method[];
  classes: string[];
  /** What colours nodes. */
  groups: string[];
  /** What nodes are called; `Graph.name` points into it. */
  names: string[];
  instances: Instance[];
}

export interface Summary {
  title: string;
  columns: Column[];
  rows: Cell[][];
  notes: string[];
}

export interface Column {
  name: string;
  better?: "higher" | "lower" | null;
  digits?: number;
  help?: string;
}

export type Plain = number | string | null;
export type Cell = Plain | { value: Plain; paper?: Plain; low?: number | null; high?: number | null; note?: string };

export interface Method {
  name: string;
  settings: [string, string][];
  /** Whether edges and whether nodes are explained; `features` if node masks are of features common to all nodes. */
  edges: boolean;
  nodes: boolean;
  features: boolean;
  /** Probability of each sub-event of the complement: one, or those of 00, 01 and 10. */
  split: number[];
  curve: Curve | null;
}

/** Means over all instances, for masks cut at a threshold. */
export interface Curve {
  at: number[];
  fid_plus: number[];
  fid_minus: number[];
  pns: number[];
  sparsity: number[];
}

export interface Instance {
  id: number;
  /** The explained, the predicted and the true class. */
  target: number;
  predicted: number | null;
  label: number | null;
  /** Probability of the explained class on the whole graph. */
  p: number | null;
  graph: Graph;
  /** By method; null where a method did not explain this instance. */
  answers: (Answer | null)[];
}

/** A drawn line joins two nodes, whichever way edges run between them. */
export interface Graph {
  node: number[];
  x: number[];
  y: number[];
  name: number[] | null;
  group: number[] | null;
  target: number[];
  source: number[];
  end: number[];
  order: number[] | null;
  /** Lines and nodes of the ground truth; null where none is known. */
  truth: number[] | null;
  truth_nodes: number[];
  /** Lines of the ground truth that no message reaches the output from, and lines that are not drawn. */
  truth_outside: number;
  left_out: number;
}

export interface Answer {
  /** What is said of lines, from source to end; of the way back where that differs; of nodes; of features. */
  lines: Marks | null;
  back: Marks | null;
  nodes: Marks | null;
  features: Marks | null;
  /** Lines, nodes and features kept by the explanation, and in all; also those that are not drawn. */
  size: Size;
  of: Size;
  exact: boolean;
  p_factual: number | null;
  p_complement: number | null;
  pns: number | null;
  pn: number | null;
  ps: number | null;
  worlds: Worlds | null;
  stops: Stops;
  /** A certificate in words. */
  words: string | null;
}

export interface Marks {
  /** In thousandths; -1 where there is none. */
  weight: number[];
  /** Places of those that the explanation keeps. */
  kept: number[];
  /** The first stop at which each is kept. */
  stay: number[];
}

/** Numbers of lines, nodes and features. */
export type Size = [number, number, number];

/** Probability of the explained class and predicted class with the explanation alone, then in each sub-event without it. */
export interface Worlds {
  p: number[];
  label: number[];
}

/** Cuts of the ranking, from nothing kept to everything kept. */
export interface Stops {
  /** The lowest weight that is kept; null where nothing is. */
  least: (number | null)[];
  size: Size[];
  worlds: Worlds[] | null;
}
