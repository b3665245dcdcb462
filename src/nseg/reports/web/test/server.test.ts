import assert from "node:assert/strict";
import { test } from "node:test";
import { ask } from "../studio/server";

test("a report that comes after the answer is not shown", async () => {
  const late: (() => void)[] = [];
  const json = (body: object): Response => new Response(JSON.stringify(body));
  let answer = (): void => undefined;
  globalThis.fetch = (name) =>
    new Promise((resolve) => {
      if (name === "progress") late.push(() => resolve(json({ share: 0.5, asked: 1 })));
      else answer = () => resolve(json({ words: "found" }));
    });
  const shown: number[] = [];
  const found = ask<{ words: string }>("change", {}, assert.fail, ({ asked }) => shown.push(asked));
  while (late.length < 2) await new Promise((resolve) => setTimeout(resolve, 50));
  late[0]?.();
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(shown, [1]);
  answer();
  assert.deepEqual(await found, { words: "found" });
  late[1]?.();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(shown, [1]);
});
