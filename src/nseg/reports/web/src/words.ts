/** Texts of the page. */

import type { Cells, MethodAnswer, Graph, Instance, Method, Payload, Size } from "./payload";
import type { Selection, Outcome, Direction } from "./state";

/** Rules of nseg/wording.py: a table of examples, tested on both sides, keeps them equal. */
const TINY = 1e-6;

/** A number as text, rounded to the nearest, halves up. */
export function number(value: number | null, digits = 3): string {
  if (value === null) return "–";
  if (digits !== 3) return value.toFixed(digits);
  return (Math.floor(1000 * value + 0.5) / 1000).toFixed(3);
}

/** A lower bound as text, rounded down so that the claim stays true. */
export function atLeast(value: number): string {
  return (Math.floor(1000 * value + TINY) / 1000).toFixed(3);
}

export function plural(count: number, one: string): string {
  return `${count} ${one}${count === 1 ? "" : "s"}`;
}

export function className(payload: Payload, number: number | null): string {
  return number === null ? "unknown" : (payload.classes[number] ?? `class ${number}`);
}

/** "Tx-11", "Node 5", "Molecule 3": a name at the beginning of a title; names from the data stay as they are. */
export function instanceName(payload: Payload, one: Instance): string {
  const word = levelName(payload).toLowerCase();
  return one.name.startsWith(`${word} `) || one.name.startsWith("the ") ? one.name.charAt(0).toUpperCase() + one.name.slice(1) : one.name;
}

/** What the list calls an instance: its name, or its number if it has none. */
export function shortName(payload: Payload, one: Instance): string {
  return one.name === `${levelName(payload).toLowerCase()} ${one.id}` ? String(one.id) : one.name.replace(/^the link /, "");
}

/** Names of the explained nodes, if they have any. */
export function targetNames(payload: Payload, { graph }: Instance): string[] {
  return graph.target.map((index) => payload.names[graph.name?.[index] ?? -1] ?? "").filter(Boolean);
}

export function levelName(payload: Payload): string {
  return { node: "Node", edge: "Link", graph: payload.molecules ? "Molecule" : "Graph" }[payload.level];
}

/** "edge", or "bond" in a molecule. */
export function lineWord(payload: Payload): string {
  return payload.molecules ? "bond" : "edge";
}

export function nodeWord(payload: Payload): string {
  return payload.molecules ? "atom" : "node";
}

export function nodeName(payload: Payload, graph: Graph, index: number): string {
  return payload.names[graph.name?.[index] ?? -1] ?? String(graph.node[index] ?? index);
}

/** Name of a node's group; null if it has none or is called the same. */
export function groupName(payload: Payload, graph: Graph, index: number): string | null {
  const group = payload.groups[graph.group?.[index] ?? -1];
  const name = graph.name === null ? "" : payload.names[graph.name[index] ?? -1];
  return group === undefined || group === name ? null : group;
}

/** True class of a node, where the colours are predicted classes. */
export function trueClass(graph: Graph, index: number): number | null {
  return graph.mistaken?.find(([node]) => node === index)?.[1] ?? graph.group?.[index] ?? null;
}

/** "a -> b", or "a - b" for both directions; after the line's own name if it has one. */
export function lineName(payload: Payload, graph: Graph, line: number, direction: Direction = "both"): string {
  const [a, b] = [graph.source[line] ?? 0, graph.end[line] ?? 0].map((index) => nodeName(payload, graph, index));
  const ends = direction === "backward" ? `${b} -> ${a}` : direction === "forward" ? `${a} -> ${b}` : `${a} - ${b}`;
  const own = payload.names[graph.edge?.[line] ?? -1] ?? "";
  return own === "" ? ends : `${own} (${ends})`;
}

const BONDS: Record<string, string> = { "1": "single", "1.5": "aromatic", "2": "double", "3": "triple" };

export function bondName(order: number): string {
  return BONDS[String(order)] ?? `order ${order}`;
}

/** The weight of a line in one direction, or the larger of both; null if there is no edge. */
export function lineWeight(answer: MethodAnswer, line: number, direction: Direction = "both"): string | null {
  const forward = answer.lines?.weight[line] ?? -1;
  const backward = answer.back === null ? forward : (answer.back.weight[line] ?? -1);
  const weight = { both: Math.max(forward, backward), forward, backward }[direction];
  return weight < 0 ? null : number(weight / 1000);
}

/** The weights of a line for its tooltip: one, or one per direction if they differ. */
export function lineWeights(payload: Payload, graph: Graph, answer: MethodAnswer, line: number): string[] {
  const [forward, backward] = [lineWeight(answer, line, "forward"), lineWeight(answer, line, "backward")];
  if (forward === null || backward === null || forward === backward) return [forward ?? backward].flatMap((weight) => (weight === null ? [] : [`weight ${weight}`]));
  return [`weight ${lineName(payload, graph, line, "forward")}: ${forward}`, `weight ${lineName(payload, graph, line, "backward")}: ${backward}`];
}

/** "edge" or "directed edge": what an element of an answer's edge mask is called. */
export function edgeWord(payload: Payload, answer: MethodAnswer): string {
  return `${answer.directed ? "directed " : ""}${lineWord(payload)}`;
}

/** "feature 3", or the name of the feature. */
export function featureName(payload: Payload, feature: number): string {
  return payload.feature_names[feature] ?? `feature ${feature}`;
}

/** "amount = 12.5 EUR", or the name of the feature if its value is unknown. */
export function featureValue(payload: Payload, cells: Cells, n: number): string {
  const feature = cells.feature[n] ?? 0;
  const [name, unit] = [cells.name?.[n] ?? featureName(payload, feature), cells.unit?.[n] ?? payload.units[feature] ?? ""];
  const value = cells.value?.[n];
  return value ? `${name} = ${value}${unit && ` ${unit}`}` : name;
}

/** What the colours of nodes stand for. */
export function colourWords(payload: Payload): string {
  return { predicted: "Colour: predicted class", true: "Colour: true class", kind: `Colour: kind of ${nodeWord(payload)}`, given: "Colour: class", type: "Colour and shape: type of node" }[payload.grouping];
}

/** "6 edges", "6 edges and 3 nodes", "14 features of 9 nodes", "3 features of all nodes". */
export function sizeWords(payload: Payload, method: Method, answer: MethodAnswer, size: Size): string {
  const [edges, nodes, features] = size;
  const node = nodeWord(payload);
  const parts = [];
  if (method.edges) parts.push(plural(edges, edgeWord(payload, answer)));
  if (method.node_mask === "object") parts.push(plural(nodes, node));
  if (method.node_mask === "attributes") parts.push(`${plural(features, "feature")} of ${plural(nodes, node)}`);
  if (method.node_mask === "common_attributes") parts.push(`${plural(features, "feature")} of all ${node}s`);
  return parts.join(" and ");
}

/** "6 of 57 edges", "14 of 72 node features (on 9 nodes)". */
export function shareWords(payload: Payload, method: Method, answer: MethodAnswer, size: Size): string {
  const [edges, nodes, features] = size;
  const [ofEdges, ofNodes, ofFeatures] = answer.of;
  const node = nodeWord(payload);
  const parts = [];
  if (method.edges) parts.push(`${edges} of ${plural(ofEdges, edgeWord(payload, answer))}`);
  if (method.node_mask === "object") parts.push(`${nodes} of ${plural(ofNodes, node)}`);
  if (method.node_mask === "attributes") parts.push(`${features} of ${plural(ofFeatures, `${node} feature`)} (on ${plural(nodes, node)})`);
  if (method.node_mask === "common_attributes") parts.push(`${features} of ${plural(ofFeatures, "feature")} (of all ${node}s)`);
  return parts.join(" and ");
}

/** Number of kept elements; nodes only count where whole nodes are masked. */
export function countElements(method: Method, [edges, nodes, features]: Size): number {
  return edges + features + (method.node_mask === "object" ? nodes : 0);
}

export function isEmpty(size: Size): boolean {
  return size.every((count) => count === 0);
}

/** "; 3 lines in one direction only" */
export function oneWayWords(count: number): string {
  return count === 0 ? "" : `; ${plural(count, "line")} in one direction only`;
}

/** What is selected, and how much of the graph it keeps. */
export function selectionWords(payload: Payload, method: Method, answer: MethodAnswer, selection: Selection): string {
  if (selection === null) return `The explanation: ${shareWords(payload, method, answer, answer.size)}`;
  const [size, least] = [answer.stops.size[selection] ?? [0, 0, 0], answer.stops.least[selection] ?? null];
  const share = shareWords(payload, method, answer, size as Size);
  return least === null ? `Nothing is kept: ${share}` : `Weight at least ${atLeast(least)}: ${share}`;
}

/** What the model does with the kept part and without it, and the bounds that follow, sentence by sentence. */
export function certificate(
  payload: Payload,
  one: Instance,
  method: Method,
  answer: MethodAnswer,
  selection: Selection,
  found: Outcome,
  labels: number[] | null,
): string[] {
  const size = (selection === null ? answer.size : answer.stops.size[selection]) ?? [0, 0, 0];
  const single = countElements(method, size) === 1;
  const what = isEmpty(size) ? "With nothing kept" : `With only ${single ? "this" : "these"} ${sizeWords(payload, method, answer, size)}`;
  const whole = one.p === null ? "" : ` (${number(one.p)} on the whole graph)`;
  const otherClass = (world: number): string => {
    const label = labels?.[world];
    return label === undefined || label === one.target ? "" : `, and the model predicts “${className(payload, label)}” instead`;
  };
  const sentences = [`${what}, the model gives “${className(payload, one.target)}” a probability of ${number(found.p_factual)}${whole}${otherClass(0)}.`];
  if (!isEmpty(size)) {
    const average = method.split.length > 1 ? ", averaged over the three complement worlds" : otherClass(1);
    sentences.push(`Without ${single ? "it" : "them"}, the probability is ${number(found.p_complement)}${average}.`);
  }
  const subject = isEmpty(size) ? "the empty explanation is" : single ? "it is" : "they are";
  sentences.push(
    `So the probability that ${subject} both necessary and sufficient (PNS) is at least ${atLeast(found.pns)}; ` +
      `necessary (PN): at least ${atLeast(found.pn)}; sufficient (PS): at least ${atLeast(found.ps)}.`,
  );
  if (selection === null && answer.exact) sentences.push(`All subsets were evaluated${bestSubset(method)}.`);
  return sentences;
}

/** Value of a setting of a method, if known. */
export function setting(method: Method, name: string): string | undefined {
  return method.settings.find(([known]) => known === name)?.[1];
}

/** In which sense an explanation is the best of all subsets. */
function bestSubset(method: Method): string {
  const tolerance = setting(method, "tolerance");
  return tolerance === undefined ? "" : `: this is the smallest one within ${tolerance} of the best bound`;
}

/** Names of the worlds in their table: the factual world, then the sub-events of the complement. */
export function worldNames(payload: Payload, method: Method): string[] {
  const nodes = method.node_mask === "common_attributes" ? "features" : `${nodeWord(payload)}${method.node_mask === "attributes" ? " features" : "s"}`;
  const lines = `${lineWord(payload)}s`;
  if (method.split.length === 1) return ["only the kept part", "all but the kept part"];
  return ["only the kept part", "all but the kept part", `kept ${nodes}, other ${lines}`, `kept ${lines}, other ${nodes}`];
}

/** Parts of a sentence: names with hyphens and probabilities in brackets, which stay on one line, and the text between. */
export function unbreakable(text: string): { text: string; whole: boolean }[] {
  const parts = text.split(/(\(p [^()]{0,40}\)\.?|[^\s()]+-[^\s()>][^\s()]*)/);
  return parts.map((part, n) => ({ text: part, whole: n % 2 === 1 })).filter((part) => part.text !== "");
}
