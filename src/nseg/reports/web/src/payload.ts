/**
 * The JSON that Python writes into the page (payload.py): change both together.
 *
 * Numbers are rounded. Texts are data and never markup.
 */

export interface Payload {
  title: string;
  level: "node" | "edge" | "graph";
  molecules: boolean;
  /** What the colours of nodes stand for. */
  grouping: "predicted" | "true" | "kind" | "given" | "type";
  /** Keys and names of the verdicts, the best first. */
  verdicts: [Verdict, string][];
  facts: [string, string][];
  summary: Summary | null;
  methods: Method[];
  classes: string[];
  /** Names of the groups that colour nodes. */
  groups: string[];
  /** Names of nodes; `Graph.name` holds positions in this list. */
  names: string[];
  /** Names of features, if they have any. */
  feature_names: string[];
  /** Units of features, if they have any. */
  units: string[];
  instances: Instance[];
  /** Patterns of each class, if they were given. */
  patterns?: ClassPatterns[];
}

export interface ClassPatterns {
  name: string;
  /** Share of the predictions that no pattern explains; of those held out, if there are any. */
  unexplained: number;
  held_out: boolean;
  patterns: Pattern[];
}

export interface Pattern {
  text: string;
  sentence: string;
  coverage: number;
  elsewhere: number | null;
  right: number;
  wrong: number;
  pns: number | null;
  necessity: Trial | null;
  sufficiency: Trial | null;
  /** Ids of explained instances. */
  examples: number[];
  /** Position, name, and whether the node is explained. */
  nodes: [number, number, string, boolean][];
  /** Both ends and the order of a bond. */
  edges: [number, number, number][];
}

/** Number changed, number tested, and the interval of the share. */
export type Trial = [number, number, number, number];

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
  /** Whether numbers are lower bounds, which are rounded down. */
  bound?: boolean;
}

export type Scalar = number | string | null;
export type Cell = Scalar | { value: Scalar; paper?: Scalar; low?: number | null; high?: number | null; note?: string };

export interface Method {
  name: string;
  settings: [string, string][];
  /** Whether edges are masked. */
  edges: boolean;
  /** What the node mask is of: whole nodes, single features of nodes, or features of all nodes; null without one. */
  node_mask: "object" | "attributes" | "common_attributes" | null;
  /** Probability of each sub-event of the complement: 1, or those of 00, 01 and 10. */
  split: number[];
  curve: Curve | null;
}

/** Means over all instances at each mask threshold. */
export interface Curve {
  at: number[];
  fid_plus: number[];
  fid_minus: number[];
  pns: number[];
  sparsity: number[];
}

/** Whether an explanation is sufficient for the class, necessary for it, or nothing of its kind can be necessary. */
export type Verdict = "both" | "sufficient" | "necessary" | "neither" | "unexplained" | "unknown";

export interface Instance {
  id: number;
  /** "tx-11", "node 5", "molecule 3". */
  name: string;
  /** The explained, the predicted and the true class. */
  target: number;
  predicted: number | null;
  label: number | null;
  /** Probability of the explained class on the whole graph. */
  p: number | null;
  graph: Graph;
  /** The smallest change after which the model says something else; null if it was not searched for. */
  change: Change | null;
  /** One per method; null if a method did not explain this instance. */
  answers: (MethodAnswer | null)[];
}

/** A counterfactual: what to change, what the model says then, and how sure it is that nothing smaller does it. */
export interface Change {
  changed: boolean;
  sentence: string;
  certainty: string;
  /** Drawn lines that are removed. */
  lines: number[];
}

/** The drawn graph. A line joins two nodes and stands for all edges between them, in both directions. */
export interface Graph {
  node: number[];
  x: number[];
  y: number[];
  name: number[] | null;
  /** Symbols of atoms with hidden hydrogen atoms and charge, as positions in the list of names; null outside molecules. */
  atom: number[] | null;
  group: number[] | null;
  /** Nodes whose true class is not the predicted one, and that class; null where colours are no predicted classes. */
  mistaken: [number, number][] | null;
  target: number[];
  source: number[];
  end: number[];
  /** Names of lines, as positions in the list of names. */
  edge: number[] | null;
  order: number[] | null;
  /** Lines and nodes of the ground truth; null if it is unknown. */
  truth: number[] | null;
  truth_nodes: number[];
  /** Number of ground truth lines outside the receptive field, and of lines that are not drawn. */
  truth_outside: number;
  left_out: number;
  /** Why a molecule is not drawn as one. */
  hint: string | null;
}

/** One method's explanation of one instance. */
export interface MethodAnswer {
  verdict: Verdict;
  /** What the prediction rests on, and whether that holds, in plain sentences. */
  reason: string;
  proof: string;
  /**
   * Mask entries of lines from source to end (forward), from end to source if they differ, of nodes and of features of all
   * nodes. If single features of nodes are masked, a node has the largest weight of its features.
   */
  lines: MaskEntries | null;
  back: MaskEntries | null;
  nodes: MaskEntries | null;
  features: MaskEntries | null;
  /** Single features of nodes, if these are masked. */
  cells?: Cells;
  /** Whether edges run in both directions and each direction counts. */
  directed: boolean;
  /** Numbers of kept, and of all, edges, nodes and features, including those that are not drawn. */
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
  /** Whether the explanation holds if edges are really deleted, or if their messages are masked, as a sentence. */
  deletion: string | null;
  /** The certificate as text. */
  words: string | null;
}

/** Mask values of lines, nodes or features. */
export interface MaskEntries {
  /** In thousandths; -1 if there is no element. */
  weight: number[];
  /** Positions of the elements that the explanation keeps. */
  kept: number[];
  /** The first stop of the slider that keeps each element, one digit in base 36 for each. */
  stay: string;
}

/** Features of nodes: how many of each node are kept, and the entries of the most important ones. */
export interface Cells extends MaskEntries {
  /** Node and number of each feature. */
  node: number[];
  feature: number[];
  /** Value of each feature as text. */
  value: string[] | null;
  /** Number of kept features of each node: in the explanation, and at each stop of the slider. */
  number: number[];
  number_at: number[][];
  /** For heterogeneous graphs: names and units of the listed features, and the number of features of each drawn node. */
  name?: string[];
  unit?: string[];
  width?: number[];
}

/** Numbers of edges, of nodes (those with a kept feature, if features of nodes are masked), and of features. */
export type Size = [number, number, number];

/** Probability of the explained class, and predicted class: with the explanation alone, then in each complement world. */
export interface Worlds {
  p: number[];
  label: number[];
}

/** Stops of the slider: thresholds of the ranking, from nothing kept to everything kept. */
export interface Stops {
  /** The lowest kept weight; null if nothing is kept. */
  least: (number | null)[];
  size: Size[];
  worlds: Worlds[] | null;
}
