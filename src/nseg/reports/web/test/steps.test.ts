import assert from "node:assert/strict";
import { test } from "node:test";
import { difference, few, NONE, setValue, switchEdge, switchNode, valueOf } from "../studio/steps";

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

test("steps are described by what they change", () => {
  const label = (n: number): string => `C ${n}`;
  const feature = (n: number): string => `feature ${n}`;
  assert.deepEqual(difference(NONE, switchEdge(NONE, [1, 2]), label, feature), ["edge C 1 - C 2 off"]);
  assert.deepEqual(difference(switchEdge(NONE, [1, 2]), NONE, label, feature), ["edge C 1 - C 2 on"]);
  assert.deepEqual(difference(NONE, switchEdge(NONE, [1, 2]), label, feature, "bond"), ["bond C 1 - C 2 off"]);
  assert.deepEqual(difference(setValue(NONE, 1, 0, 2, 1), setValue(NONE, 1, 0, 3, 1), label, feature), ["feature 0 of C 1 is 3"]);
  assert.equal(few(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
});
