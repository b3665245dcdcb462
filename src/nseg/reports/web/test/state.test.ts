import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_FILTER, applyFilter, kept, linkedInstance, linkTo, countOneWay, sorted, outcome, rows } from "../src/state";
import { answer, instance, payload } from "./example";

test("a link leads to its instance, anything else to the overview", () => {
  for (const id of [0, 7, 305]) assert.equal(linkedInstance(linkTo(id)), id);
  for (const hash of ["", "#", "#overview", "#instance=", "#instance=-1", "#instance=<b>", "#main"]) assert.equal(linkedInstance(hash), null);
});

test("sorting is stable and puts unknown values last in both directions", () => {
  const items = [{ n: 2 }, { n: null }, { n: 1 }, { n: 2, second: true }];
  const key = (item: { n: number | null }): number | null => item.n;
  assert.deepEqual(sorted(items, key, false).map(key), [1, 2, 2, null]);
  assert.deepEqual(sorted(items, key, true).map(key), [2, 2, 1, null]);
  assert.equal(sorted(items, key, true)[1], items[3]);
  assert.deepEqual(sorted(["b10", "b9", "a"], (text) => text, false), ["a", "b9", "b10"]);
});

test("a row must pass all filters", () => {
  const all = rows(payload(), 0);
  const ids = (part: object): number[] => applyFilter(all, { ...NO_FILTER, ...part }).map((row) => row.id);
  assert.deepEqual(ids({}), [3, 30, 7]);
  assert.deepEqual(ids({ text: "3" }), [3, 30]);
  assert.deepEqual(ids({ text: "HOUSE" }), [3, 30]);
  assert.deepEqual(ids({ target: 1 }), [7]);
  assert.deepEqual(ids({ correct: false }), [30]);
  assert.deepEqual(ids({ pns: { low: 0.5, high: null } }), [3]);
  assert.deepEqual(ids({ pns: { low: null, high: 0.5 } }), [30]);
  assert.deepEqual(ids({ size: { low: 2, high: 2 } }), [3, 30]);
  assert.deepEqual(ids({ text: "house", correct: true }), [3]);
});

test("an instance that a method did not explain has no numbers", () => {
  const row = rows(payload(), 0)[2];
  assert.equal(row?.pns, null);
  assert.equal(row?.size, null);
});

test("stops of the slider are nested, from nothing to everything", () => {
  const one = answer();
  const sets = one.stops.least.map((_, stop) => [...kept(one, stop).lines.keys()]);
  assert.deepEqual(sets[0], []);
  assert.deepEqual(sets.at(-1), [0, 1, 2]);
  for (let n = 1; n < sets.length; n++) for (const line of sets[n - 1] ?? []) assert.ok(sets[n]?.includes(line));
});

test("without a stop, the explanation itself is kept, each line in its directions", () => {
  assert.deepEqual([...kept(answer(), null).lines], [[0, "both"], [2, "both"]]);
  const apart = answer({
    lines: { weight: [900, 100, 500], kept: [0], stay: "132" },
    back: { weight: [1000, -1, 300], kept: [0, 2], stay: "142" },
  });
  assert.deepEqual([...kept(apart, null).lines], [[0, "both"], [2, "backward"]]);
  assert.equal(countOneWay(apart, kept(apart, null)), 1);
  assert.deepEqual(kept(apart, 3).lines.get(1), "forward"); // there is no edge in the other direction
  assert.equal(countOneWay(apart, kept(apart, 3)), 0);
});

test("the bounds at a stop follow from its worlds", () => {
  const found = outcome(instance(), answer(), 1, [1])!;
  const expected = { p_factual: 0.8, p_complement: 0.2, pns: 0.6, pn: 0.75, ps: 0.75 } as const;
  for (const [name, value] of Object.entries(expected)) assert.ok(Math.abs(found[name as keyof typeof expected] - value) < 1e-12, name);
  assert.deepEqual([found.changes_without, found.changes_alone], [true, false]);
  const joint = answer();
  joint.stops.worlds = [{ p: [0.9, 0, 0.3, 0.6], label: [0, 1, 0, 0] }];
  assert.ok(Math.abs((outcome(instance(), joint, 0, [1 / 3, 1 / 3, 1 / 3])?.p_complement ?? 0) - 0.3) < 1e-12);
});

test("without a model, the explanation has its own numbers and a stop has none", () => {
  const alone = answer({ worlds: null });
  alone.stops.worlds = null;
  assert.equal(outcome(instance(), alone, 1, [1]), null);
  assert.equal(outcome(instance(), alone, null, [1])?.pns, 0.7);
  assert.equal(outcome(instance(), alone, null, [1])?.changes_alone, null);
});
