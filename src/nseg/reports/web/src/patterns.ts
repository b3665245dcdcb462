/** What the model looks at: the patterns of each class, with tests on the model and examples one click away. */

import { h, svg, type Child } from "./dom";
import type { ClassPatterns, Payload, Pattern, Trial } from "./payload";
import { linkTo } from "./state";
import { atLeast, number } from "./words";

const SIZE = 170;
const MARGIN = 26;

export function patternsView(payload: Payload, classes: ClassPatterns[]): HTMLElement {
  const known = new Map(payload.instances.map((one) => [one.id, one.name]));
  return h(
    "article",
    { class: "patterns" },
    h("h2", { id: "patterns-title", tabindex: -1 }, "What the model looks at"),
    h("p", {}, "Patterns that explanations of a class have in common, and what the model says when a pattern is taken out of predictions of the class, or put into others. Tests are on predictions that were not used to find the patterns."),
    ...classes.map((one) => classSection(one, known)),
  );
}

function classSection(one: ClassPatterns, known: Map<number, string>): HTMLElement {
  const left = `${percent(one.unexplained)} of ${one.held_out ? "held-out " : ""}predictions are left unexplained.`;
  return h(
    "section",
    {},
    h("h3", {}, one.name),
    h("p", { class: "note" }, one.patterns.length ? left : "No typical pattern was found."),
    h("div", { class: "cards" }, ...one.patterns.map((pattern) => card(pattern, known))),
  );
}

function card(pattern: Pattern, known: Map<number, string>): HTMLElement {
  const facts: [string, string | null][] = [
    ["explains", `${percent(pattern.coverage)} of the class`],
    ["right, wrong", pattern.right + pattern.wrong ? `${pattern.right}, ${pattern.wrong}` : null],
    ["elsewhere", pattern.elsewhere === null ? null : `in ${percent(pattern.elsewhere)} of other classes`],
    ["mean PNS", pattern.pns === null ? null : `at least ${atLeast(pattern.pns)}`],
    ["taken out", trial(pattern.necessity, "change")],
    ["put in", trial(pattern.sufficiency, "become this class")],
  ];
  const examples = pattern.examples.filter((id) => known.has(id));
  return h(
    "section",
    { class: "card" },
    drawing(pattern),
    h("h4", {}, h("code", {}, pattern.text)),
    h("p", {}, pattern.sentence),
    h("dl", { class: "facts" }, ...facts.flatMap(([term, text]): Child[] => (text === null ? [] : [h("dt", {}, term), h("dd", {}, text)]))),
    examples.length > 0 && h("p", {}, "Examples: ", ...examples.flatMap((id, n): Child[] => [n > 0 && ", ", h("a", { href: linkTo(id) }, known.get(id) ?? String(id))])),
  );
}

function trial(one: Trial | null, change: string): string | null {
  if (one === null) return null;
  const [changed, tested, low, high] = one;
  return `${changed} of ${tested} ${change} (interval ${number(low)} to ${number(high)})`;
}

function percent(share: number): string {
  return `${number(100 * share, 0)} %`;
}

/** The pattern as a small drawing: a ring marks the explained node, lines side by side the order of a bond. */
function drawing(pattern: Pattern): SVGElement {
  const at = (value: number): number => MARGIN + value * (SIZE - 2 * MARGIN);
  const lines = pattern.edges.flatMap(([a, b, order]) => {
    const [[x1, y1], [x2, y2]] = [a, b].map((n) => [at(pattern.nodes[n]?.[0] ?? 0), at(pattern.nodes[n]?.[1] ?? 0)]) as [[number, number], [number, number]];
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const count = Math.max(1, Math.round(order));
    return Array.from({ length: count }, (_, n) => {
      const shift = (4 * (n - (count - 1) / 2)) / length;
      const [dx, dy] = [-(y2 - y1) * shift, (x2 - x1) * shift];
      return svg("line", { x1: x1 + dx, y1: y1 + dy, x2: x2 + dx, y2: y2 + dy });
    });
  });
  const nodes = pattern.nodes.map(([x, y, name, target]) =>
    svg("g", {}, svg("circle", { class: target ? "target" : "", cx: at(x), cy: at(y), r: name ? 11 : 6 }), name && svg("text", { x: at(x), y: at(y) + 4, "text-anchor": "middle" }, name)),
  );
  return svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": pattern.text }, ...lines, ...nodes);
}
