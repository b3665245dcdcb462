import assert from "node:assert/strict";
import { test } from "node:test";
import { difference, few, NONE, setValue, switchEdge, switchEdges, switchNode, valueOf, type Pair } from "../studio/steps";

test("switching twice changes nothing", () => {
  assert.deepEqual(switchEdge(switchEdge(NONE, [1, 2]), [1, 2]), NONE);
  assert.deepEqual(switchNode(switchNode(NONE, 3), 3), NONE);
  const added = { ...NONE, added: [[0, 4] as [number, number]] };
  assert.deepEqual(switchEdge(added, [0, 4]), NONE);
});

test("a feature has the value that it was given, 0 if its node is off, else its own", () => {
  const changed = setValue(NONE, 2, 1, 0.5, 3);
  assert.equal(valueOf(changed, 2, 1, 3), 0.5);
  assert.deepEqual(setValue(changed, 2, 1, 3, 3), NONE);
  const off = switchNode(changed, 2);
  assert.equal(valueOf(off, 2, 1, 3), 0);
  assert.equal(valueOf(setValue(off, 2, 1, 3, 3), 2, 1, 3), 3);
});

test("edges of several kinds between the same nodes are different edges", () => {
  const one = switchEdge(NONE, [1, 2, 3]);
  assert.deepEqual(one.removed, [[1, 2, 3]]);
  assert.deepEqual(switchEdge(one, [1, 2]).removed, [[1, 2, 3], [1, 2]]);
  assert.deepEqual(switchEdges(switchEdges(one, [[1, 2, 3], [0, 1]]), [[1, 2, 3], [0, 1]]), NONE);
});

test("steps are described by what they change", () => {
  const words = { node: (n: number) => `C ${n}`, edge: ([a, b]: Pair) => `C ${a} - C ${b}`, feature: (_: number, f: number) => `feature ${f}`, word: "bond" };
  assert.deepEqual(difference(NONE, switchEdge(NONE, [1, 2]), words), ["bond C 1 - C 2 off"]);
  assert.deepEqual(difference(switchEdge(NONE, [1, 2]), NONE, words), ["bond C 1 - C 2 on"]);
  assert.deepEqual(difference(setValue(NONE, 1, 0, 2, 1), setValue(NONE, 1, 0, 3, 1), words), ["feature 0 of C 1 is 3"]);
  assert.equal(few(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
});
