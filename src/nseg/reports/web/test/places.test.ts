import assert from "node:assert/strict";
import { test } from "node:test";
import { FAR_FONT, NEAR_FONT, placeLabels, roomForTexts, separate, type LabelledNode } from "../src/places";

/** Numbers that look random and are the same each time. */
function* noise(): Generator<number> {
  for (let state = 7; ; ) yield (state = (state * 16807) % 2147483647) / 2147483647;
}

test("nodes are moved apart, and those that are far from others stay", () => {
  const random = noise();
  const points = Array.from({ length: 60 }, () => ({ x: 400 * (random.next().value as number), y: 400 * (random.next().value as number) }));
  const moved = separate([...points, { x: 50, y: 50 }, { x: 50, y: 50 }], 20);
  const closest = Math.min(...moved.flatMap((a, n) => moved.slice(n + 1).map((b) => Math.hypot(a.x - b.x, a.y - b.y))));
  assert.ok(closest > 15, String(closest));
  assert.deepEqual(separate([{ x: 0, y: 0 }, { x: 50, y: 0 }], 20), [{ x: 0, y: 0 }, { x: 50, y: 0 }]);
});

test("names cover neither each other nor nodes, and the explained node always has its name", () => {
  const random = noise();
  const at = (): number => 500 * (random.next().value as number);
  const nodes = separate(Array.from({ length: 80 }, () => ({ x: at(), y: at() })), 30).map(
    (point, n): LabelledNode => ({ ...point, radius: 10, text: `name ${n}`, font: n < 20 ? NEAR_FONT : FAR_FONT, rank: n === 3 ? 2 : n < 20 ? 1 : 0 }),
  );
  const width = (text: string, font: number): number => 0.6 * font * text.length;
  const places = placeLabels(nodes, width);
  assert.ok(places[3]);
  const boxes = nodes.flatMap((node, n) => {
    const place = places[n];
    if (!place) return [];
    const [right, down] = [{ left: -1, center: 0, right: 1 }[place.halign], { top: -1, center: 0, bottom: 1 }[place.valign]];
    const [w, h] = [width(node.text, node.font), node.font];
    const [x, y] = [node.x + right * (10 + w / 2) + place.mx, node.y + down * (10 + h / 2) + place.my];
    return [{ n, left: x - w / 2, right: x + w / 2, top: y - h / 2, bottom: y + h / 2 }];
  });
  assert.ok(boxes.length > 20);
  const hit = (a: (typeof boxes)[0], b: Omit<(typeof boxes)[0], "n">): boolean => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  assert.equal(boxes.filter((a, k) => boxes.slice(k + 1).some((b) => hit(a, b))).length, 0);
  const circles = nodes.map(({ x, y }) => ({ left: x - 10, right: x + 10, top: y - 10, bottom: y + 10 }));
  assert.equal(boxes.filter((a) => circles.some((circle, m) => m !== a.n && hit(a, circle))).length, 0);
});

test("texts of lines are left out where they would cover nodes, names or each other", () => {
  const width = (text: string, font: number): number => 0.6 * font * text.length;
  const node = (x: number, y: number, text = ""): LabelledNode => ({ x, y, radius: 10, text, font: FAR_FONT, rank: 0 });
  const nodes = [node(0, 0), node(200, 0), node(100, -60, "paper 7")];
  const places = placeLabels(nodes, width);
  const line = (x: number, y: number, toX: number, toY: number, text = "wrote") => ({ from: { x, y }, to: { x: toX, y: toY }, text, font: FAR_FONT, margin: 8 });
  const found = roomForTexts([line(0, 0, 200, 0), line(0, 0, 200, 0), line(0, 0, 30, 0), line(0, -60, 200, -60), line(300, 0, 300, 200)], nodes, places, width);
  assert.deepEqual(found, [true, false, false, false, true]); // alone, the same again, too short, over a node, elsewhere
});
