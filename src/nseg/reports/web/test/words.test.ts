import assert from "node:assert/strict";
import { test } from "node:test";
import { readFileSync } from "node:fs";
import type { Method, Size } from "../src/payload";
import { kept, outcome } from "../src/state";
import { atLeast, bondName, certificate, featureValue, number, selectionWords, sizeWords, groupName, instanceName, lineName, lineWeight, lineWeights, nodeName, oneWayWords, shareWords, shortName, trueClass, worldNames } from "../src/words";
import { answer, instance, payload } from "./example";

const page = payload();
const { graph } = instance();
const [method] = page.methods as [Method];
const joint: Method = { ...method, node_mask: "object", split: [1 / 3, 1 / 3, 1 / 3] };

/** Texts that tests/test_words.py checks for nseg/wording.py too. */
interface Wording {
  numbers: { value: number; nearest: string; bound: string }[];
  sizes: { edges: boolean; node_mask: Method["node_mask"]; directed: boolean; molecule: boolean; size: Size; of: Size; words: string; share: string }[];
}
const wording = JSON.parse(readFileSync("test/wording.json", "utf8")) as Wording;

test("numbers are written as Python writes them", () => {
  assert.ok(wording.numbers.length > 5);
  for (const { value, nearest, bound } of wording.numbers) {
    assert.equal(number(value), nearest, String(value));
    assert.equal(atLeast(value), bound, String(value));
  }
});

test("sizes are written as Python writes them", () => {
  assert.ok(wording.sizes.length > 5);
  for (const { edges, node_mask, directed, molecule, size, of, words, share } of wording.sizes) {
    const one: Method = { ...method, edges, node_mask };
    const shown = payload({ molecules: molecule });
    assert.equal(sizeWords(shown, one, answer({ directed, of }), size), words);
    assert.equal(shareWords(shown, one, answer({ directed, of }), size), share);
  }
});

test("the certificate describes the model with and without the explanation", () => {
  const found = outcome(page.instances[0]!, answer(), null, [1])!;
  const text = certificate(page, instance(), method, answer(), null, found, [0, 1]).join(" ");
  assert.equal(
    text,
    "With only these 2 edges, the model gives “house” a probability of 0.800 (0.900 on the whole graph). " +
      "Without them, the probability is 0.100, and the model predicts “tree” instead. " +
      "So the probability that they are both necessary and sufficient (PNS) is at least 0.700; " +
      "necessary (PN): at least 0.875; sufficient (PS): at least 0.777.",
  );
});

test("an exhaustive search is mentioned with its tolerance, but never for a stop of the slider", () => {
  const one = answer({ exact: true });
  const said = (stop: number | null): string => certificate(page, instance(), method, one, stop, outcome(instance(), one, stop, [1])!, [0, 1]).join(" ");
  assert.match(said(null), /All subsets were evaluated: this is the smallest one within 0\.05 of the best bound\.$/);
  assert.doesNotMatch(said(1), /subsets/);
});

test("the certificate has its own words for one edge and for no edge", () => {
  const one = answer();
  const said = (stop: number): string => certificate(page, instance(), method, one, stop, outcome(instance(), one, stop, [1])!, null).join(" ");
  assert.match(said(1), /^With only this 1 edge, .* Without it, the probability is 0\.200\. So the probability that it is both/);
  assert.match(said(0), /^With nothing kept, the model gives .* that the empty explanation is both/);
  assert.doesNotMatch(said(0), /Without/);
});

test("the certificate names features as features, and one feature of one node is one element", () => {
  const cells = { weight: [900, 800], kept: [0], stay: "12", node: [0, 1], feature: [3, 0], value: null, number: [1, 0, 0], number_at: [[0, 0, 0], [1, 0, 0], [1, 1, 0]] };
  const one = answer({ lines: null, nodes: { weight: [900, 800, 100], kept: [0], stay: "129" }, cells, size: [0, 1, 1], of: [0, 3, 12] });
  one.stops.size = [[0, 0, 0], [0, 1, 1], [0, 2, 2], [0, 3, 12]];
  const only: Method = { ...method, edges: false, node_mask: "attributes" };
  const said = (stop: number | null): string => certificate(page, instance(), only, one, stop, outcome(instance(), one, stop, [1])!, null).join(" ");
  assert.match(said(null), /^With only this 1 feature of 1 node, .* Without it, /);
  assert.match(said(2), /^With only these 2 features of 2 nodes, .* Without them, /);
  assert.deepEqual([...kept(one, null).nodes], [[0, 0.25]]);
  assert.deepEqual([...kept(one, 2).nodes], [[0, 0.25], [1, 0.25]]);
  assert.deepEqual(worldNames(page, { ...joint, node_mask: "attributes" })[2], "kept node features, other edges");
});

test("the selection is described with its size", () => {
  assert.equal(selectionWords(page, method, answer(), null), "The explanation: 2 of 3 edges");
  assert.equal(selectionWords(page, method, answer(), 0), "Nothing is kept: 0 of 3 edges");
  assert.equal(selectionWords(page, method, answer(), 2), "Weight at least 0.500: 2 of 3 edges");
});

test("nodes and edges have a name and an id", () => {
  assert.equal(nodeName(page, graph, 2), "9");
  assert.equal(lineName(page, graph, 2), "3 - 9");
  assert.equal(lineName(page, graph, 2, "backward"), "9 -> 3");
  const named = { ...graph, name: [0, 1, 0] };
  assert.equal(nodeName(payload({ names: ["C", "<b>"] }), named, 1), "<b>");
  assert.equal(lineName(payload({ names: ["C3", "O4"], molecules: true }), named, 0), "C3 - O4");
  assert.equal(lineName(payload({ names: ["a", "b", "paid"] }), { ...named, edge: [2, 2, 2] }, 0, "forward"), "paid (a -> b)");
  assert.equal(bondName(1.5), "aromatic");
});

test("the weight of a line is that of the requested direction", () => {
  assert.equal(lineWeight(answer(), 0), "0.900");
  const apart = answer({ back: { weight: [100, -1, 500], kept: [], stay: "342" } });
  assert.deepEqual((["forward", "backward", "both"] as const).map((way) => lineWeight(apart, 0, way)), ["0.900", "0.100", "0.900"]);
  assert.deepEqual(lineWeights(page, graph, apart, 0), ["weight 3 -> 4: 0.900", "weight 4 -> 3: 0.100"]);
  assert.deepEqual(lineWeights(page, graph, apart, 2), ["weight 0.500"]);
  assert.equal(lineWeight(apart, 1), "0.100");
  assert.equal(lineWeight(answer({ lines: null }), 0), null);
});

test("a group is named unless the node has the same name", () => {
  const groups = { ...graph, name: [0, 1, 0], group: [0, 0, 0] };
  const named = payload({ names: ["cow", "grass"], groups: ["cow"] });
  assert.deepEqual([0, 1].map((index) => groupName(named, groups, index)), [null, "cow"]);
  assert.equal(groupName(page, graph, 0), null);
});

test("an instance has the name of its node", () => {
  assert.equal(instanceName(page, instance()), "Node 3");
  assert.equal(instanceName(page, instance({ name: "<b>" })), "<b>");
  assert.deepEqual([instance(), instance({ name: "tx-11" })].map((one) => shortName(page, one)), ["3", "tx-11"]);
});

test("features are written with value and unit", () => {
  const named = payload({ feature_names: ["amount", "new"], units: ["EUR", ""] });
  const cells = { node: [0, 0, 0], feature: [0, 1, 2], value: ["12.5", "1", ""], weight: [1, 1, 1], kept: [], stay: "", number: [], number_at: [] };
  assert.deepEqual([0, 1, 2].map((n) => featureValue(named, cells, n)), ["amount = 12.5 EUR", "new = 1", "feature 2"]);
  const typed = { ...cells, name: ["age", "new", "year"], unit: ["a", "", ""] };
  assert.deepEqual([0, 1, 2].map((n) => featureValue(named, typed, n)), ["age = 12.5 a", "new = 1", "year"]);
});

test("a node's true class is the predicted one unless it is mistaken", () => {
  const own = { ...graph, group: [0, 1, 1], mistaken: [[2, 0]] as [number, number][] };
  assert.deepEqual([0, 1, 2].map((n) => trueClass(own, n)), [0, 1, 0]);
});

test("lines that are kept in one direction are counted", () => {
  assert.equal(oneWayWords(0), "");
  assert.equal(oneWayWords(1), "; 1 line in one direction only");
});

test("one kind of mask has two worlds, both kinds have four", () => {
  assert.equal(worldNames(page, method).length, 2);
  assert.deepEqual(worldNames(page, joint), ["only the kept part", "all but the kept part", "kept nodes, other edges", "kept edges, other nodes"]);
});
