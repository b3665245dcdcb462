/** Numbers in words. */

import type { Answer, Graph, Instance, Method, Payload, Size } from "./payload";
import type { Cut, Outcome, Way } from "./state";

export function number(value: number | null, digits = 3): string {
  if (value === null) return "–";
  return Number.isInteger(value) && digits === 0 ? String(value) : value.toFixed(digits);
}

/** Rounded down, for a claim that something is at least this. */
export function atLeast(value: number): string {
  return (Math.floor(1000 * value + 1e-6) / 1000).toFixed(3);
}

export function plural(count: number, one: string): string {
  return `${count} ${one}${count === 1 ? "" : "s"}`;
}

export function className(payload: Payload, number: number | null): string {
  return number === null ? "unknown" : (payload.classes[number] ?? `class ${number}`);
}

/** "Node 5", or where nodes have names "Node 5 (account 7)". */
export function instanceName(payload: Payload, one: Instance): string {
  const names = targetNames(payload, one).join(", ");
  return `${levelName(payload)} ${one.id}${names && ` (${names})`}`;
}

/** What the explained nodes are called, where they have names. */
export function targetNames(payload: Payload, { graph }: Instance): string[] {
  return graph.target.map((place) => payload.names[graph.name?.[place] ?? -1] ?? "").filter(Boolean);
}

export function levelName(payload: Payload): string {
  return { node: "Node", edge: "Link", graph: payload.molecules ? "Molecule" : "Graph" }[payload.level];
}

/** What a line is: a bond in a molecule. */
export function lineWord(payload: Payload): string {
  return payload.molecules ? "bond" : "edge";
}

export function nodeWord(payload: Payload): string {
  return payload.molecules ? "atom" : "node";
}

export function nodeName(payload: Payload, graph: Graph, place: number): string {
  const id = graph.node[place] ?? place;
  const name = graph.name === null ? "" : (payload.names[graph.name[place] ?? -1] ?? "");
  if (name === "") return String(id);
  return payload.molecules ? `${name}${id}` : `${name} (${id})`;
}

/** What the group of a node is called, where its name does not say so already. */
export function groupName(payload: Payload, graph: Graph, place: number): string | null {
  const group = payload.groups[graph.group?.[place] ?? -1];
  const name = graph.name === null ? "" : payload.names[graph.name[place] ?? -1];
  return group === undefined || group === name ? null : group;
}

export function lineName(payload: Payload, graph: Graph, line: number, way: Way = "both"): string {
  const [a, b] = [graph.source[line] ?? 0, graph.end[line] ?? 0].map((place) => nodeName(payload, graph, place));
  if (way === "back") return `${b} → ${a}`;
  return way === "there" ? `${a} → ${b}` : `${a} – ${b}`;
}

const BONDS: Record<string, string> = { "1": "single", "1.5": "aromatic", "2": "double", "3": "triple" };

export function bondName(order: number): string {
  return BONDS[String(order)] ?? `order ${order}`;
}

/** The weight of a line one way, or the heavier of both; null where there is none. */
export function lineWeight(answer: Answer, line: number, way: Way = "both"): string | null {
  const there = answer.lines?.weight[line] ?? -1;
  const back = answer.back === null ? there : (answer.back.weight[line] ?? -1);
  const weight = { both: Math.max(there, back), there, back }[way];
  return weight < 0 ? null : (weight / 1000).toFixed(3);
}

/** The weights of a line for its tip: one, or one for each way where they differ. */
export function lineWeights(payload: Payload, graph: Graph, answer: Answer, line: number): string[] {
  const [there, back] = [lineWeight(answer, line, "there"), lineWeight(answer, line, "back")];
  if (there === null || back === null || there === back) return [there ?? back].flatMap((weight) => (weight === null ? [] : [`weight ${weight}`]));
  return [`weight ${lineName(payload, graph, line, "there")}: ${there}`, `weight ${lineName(payload, graph, line, "back")}: ${back}`];
}

/** "6 edges", "6 edges and 3 nodes". */
export function sizeWords(payload: Payload, method: Method, size: Size): string {
  const [lines, nodes, features] = size;
  const parts = [];
  if (method.edges) parts.push(plural(lines, lineWord(payload)));
  if (method.features) parts.push(plural(features, "feature"));
  else if (method.nodes) parts.push(plural(nodes, nodeWord(payload)));
  return parts.join(" and ");
}

/** "6 of 57 edges". */
export function shareWords(payload: Payload, method: Method, size: Size, of: Size): string {
  const parts = [];
  if (method.edges) parts.push(`${size[0]} of ${plural(of[0], lineWord(payload))}`);
  if (method.features) parts.push(`${size[2]} of ${plural(of[2], "feature")}`);
  else if (method.nodes) parts.push(`${size[1]} of ${plural(of[1], nodeWord(payload))}`);
  return parts.join(" and ");
}

export function isEmpty(size: Size): boolean {
  return size.every((count) => count === 0);
}

/** "; 3 bonds in one direction only" */
export function oneWayWords(payload: Payload, count: number): string {
  return count === 0 ? "" : `; ${plural(count, lineWord(payload))} in one direction only`;
}

/** What the slider stands at. */
export function cutWords(payload: Payload, method: Method, answer: Answer, cut: Cut): string {
  if (cut === null) return `The explanation: ${shareWords(payload, method, answer.size, answer.of)}`;
  const [size, least] = [answer.stops.size[cut] ?? [0, 0, 0], answer.stops.least[cut] ?? null];
  const share = shareWords(payload, method, size as Size, answer.of);
  return least === null ? `Nothing is kept: ${share}` : `Weight at least ${least.toFixed(3)}: ${share}`;
}

/** The certificate of what is kept, sentence by sentence. */
export function certificate(
  payload: Payload,
  one: Instance,
  method: Method,
  answer: Answer,
  cut: Cut,
  found: Outcome,
  labels: number[] | null,
): string[] {
  const size = (cut === null ? answer.size : answer.stops.size[cut]) ?? [0, 0, 0];
  const target = className(payload, one.target);
  const what = isEmpty(size) ? "nothing" : `only ${size[0] + size[1] + size[2] === 1 ? "this" : "these"} ${sizeWords(payload, method, size)}`;
  const them = size[0] + size[1] + size[2] === 1 ? "it" : "them";
  const whole = one.p === null ? "" : ` (on the whole graph p = ${number(one.p)})`;
  const other = (place: number): string => {
    const label = labels?.[place];
    return label === undefined || label === one.target ? "" : `, and the model says “${className(payload, label)}” instead`;
  };
  const sentences = [`Keeping ${what} gives “${target}” with p = ${number(found.p_factual)}${whole}${other(0)}.`];
  if (!isEmpty(size)) {
    const average = method.split.length > 1 ? " on average over three ways to leave them out" : "";
    sentences.push(`Without ${them} p = ${number(found.p_complement)}${average}${average ? "" : other(1)}.`);
  }
  sentences.push(
    `So the probability that ${them === "it" ? "it is" : "they are"} both necessary and sufficient (PNS) is at least ${atLeast(found.pns)}; ` +
      `necessary (PN) at least ${atLeast(found.pn)}; sufficient (PS) at least ${atLeast(found.ps)}.`,
  );
  if (cut === null && answer.exact) sentences.push(`All subsets were tried${best(method)}.`);
  return sentences;
}

/** A setting of a method, if it is known. */
export function setting(method: Method, name: string): string | undefined {
  return method.settings.find(([known]) => known === name)?.[1];
}

/** What is best of an explanation for which all subsets were tried. */
function best(method: Method): string {
  const tolerance = setting(method, "tolerance");
  return tolerance === undefined ? "" : `: of those within ${tolerance} of the best bound, this is the smallest`;
}

/** The sub-events of the complement, as they are called in the table of worlds. */
export function worldNames(payload: Payload, method: Method): string[] {
  const nodes = method.features ? "features" : `${nodeWord(payload)}s`;
  const lines = `${lineWord(payload)}s`;
  if (method.split.length === 1) return ["only what is kept", "all but what is kept"];
  return ["only what is kept", `other ${lines}, other ${nodes} (00)`, `other ${lines}, kept ${nodes} (01)`, `kept ${lines}, other ${nodes} (10)`];
}
