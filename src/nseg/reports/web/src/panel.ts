/** One method's explanation of one instance: picture, slider, worlds, certificate, lists. */

import { replaceContent, h, labelled, sentence, type Child } from "./dom";
import { Drawing, groupShape, describeGraph } from "./drawing";
import { groupColour } from "./groups";
import type { Cells, Graph, MethodAnswer, Instance, MaskEntries, Method, Payload, Size, Worlds } from "./payload";
import { kept, countOneWay, outcome, type Direction, type Selection, type Kept } from "./state";
import { atLeast, bondName, certificate, className, colourWords, countElements, edgeWord, featureName, featureValue, groupName, lineName, lineWeight, lineWeights, lineWord, nodeName, nodeWord, number, oneWayWords, plural, selectionWords, sizeWords, trueClass, worldNames } from "./words";

/** Maximum number of features that a tooltip names. */
const MAX_FEATURES = 8;

export class Panel {
  readonly element: HTMLElement;
  readonly drawing: Drawing;
  private selection: Selection = null;
  private readonly method: Method;
  private readonly slider: HTMLInputElement;
  private readonly explanationRadio: HTMLInputElement;
  private readonly thresholdRadio: HTMLInputElement;
  private readonly keptSize = h("p", { class: "kept-size", "aria-live": "polite" });
  private readonly numbers = h("div");
  private readonly worldsArea = h("div");
  private readonly words = h("div", { class: "certificate" });
  private readonly lists = h("div");

  constructor(
    private readonly payload: Payload,
    private readonly one: Instance,
    index: number,
    private readonly answer: MethodAnswer,
    many: boolean,
  ) {
    this.method = payload.methods[index] as Method;
    const name = `selection-${index}`;
    this.drawing = new Drawing(payload, one, `${this.method.name}: ${describeGraph(payload, one)}`, {
      node: (n) => this.nodeTip(n),
      line: (n) => this.lineTip(n),
    });
    this.explanationRadio = h("input", { type: "radio", name, checked: true, change: () => this.select(null) });
    this.thresholdRadio = h("input", { type: "radio", name, change: () => this.select(Number(this.slider.value)) });
    const last = answer.stops.least.length - 1;
    this.slider = h("input", { type: "range", min: 0, max: last, step: 1, value: this.initialStop(), input: () => this.select(Number(this.slider.value)) });
    this.element = h(
      "section",
      { class: "panel", "aria-label": this.method.name },
      many && h("h3", {}, this.method.name),
      this.answerWords(),
      h("div", { class: "picture" }, this.drawing.element, this.legend()),
      h("div", { class: "results" }, this.worldsArea, this.keptSize, this.lists, this.numbersSection()),
    );
    this.select(null);
  }

  /** The answer in plain sentences, with its verdict. */
  private answerWords(): HTMLElement {
    const { answer, payload } = this;
    const name = new Map(payload.verdicts).get(answer.verdict) ?? "";
    return h(
      "div",
      { class: "answer" },
      h("p", { class: "reason" }, ...sentence(answer.reason)),
      h("p", { class: "proof" }, h("span", { class: `badge ${answer.verdict}` }, name), " ", ...sentence(answer.proof)),
    );
  }

  /** Bounds, fidelity and the slider along the ranking, folded and explained. */
  private numbersSection(): HTMLElement {
    const { payload, answer } = this;
    return h(
      "details",
      { class: "all-numbers" },
      h("summary", {}, "Numbers"),
      this.words,
      this.numbers,
      h("p", { class: "note" }, "PNS, PN and PS are lower bounds of the probability that the kept part is necessary and sufficient, necessary, and sufficient. Fid+ and Fid− say whether the class changes."),
      h(
        "fieldset",
        { class: "threshold" },
        h("legend", {}, "What is kept"),
        h("label", {}, this.explanationRadio, ` the explanation: ${sizeWords(payload, this.method, answer, answer.size) || "nothing"}`),
        h("label", {}, this.thresholdRadio, " everything above a weight threshold:"),
        labelled("Threshold (left: nothing, right: everything)", this.slider),
      ),
      answer.deletion !== null && h("p", {}, answer.deletion),
      answer.words !== null && this.certificateSection(answer.words),
    );
  }

  private certificateSection(words: string): HTMLElement {
    return h("details", {}, h("summary", {}, "Certificate"), h("p", {}, words));
  }

  mount(): void {
    this.drawing.mount();
  }

  unmount(): void {
    this.drawing.unmount();
  }

  /** The first stop of the slider that keeps at least as much as the explanation. */
  private initialStop(): number {
    const total = (size: Size): number => countElements(this.method, size);
    const found = this.answer.stops.size.findIndex((size) => total(size) >= total(this.answer.size));
    return found < 0 ? this.answer.stops.size.length - 1 : found;
  }

  private select(selection: Selection): void {
    this.selection = selection;
    this.explanationRadio.checked = selection === null;
    this.thresholdRadio.checked = selection !== null;
    const shown = kept(this.answer, selection);
    this.drawing.showKept(shown);
    const text = selectionWords(this.payload, this.method, this.answer, selection) + oneWayWords(countOneWay(this.answer, shown));
    this.slider.setAttribute("aria-valuetext", selectionWords(this.payload, this.method, this.answer, Number(this.slider.value)));
    this.keptSize.textContent = text;
    this.showNumbers(selection);
    replaceContent(this.lists, ...this.keptLists(shown));
  }

  private get worlds(): Worlds | null {
    return this.selection === null ? this.answer.worlds : (this.answer.stops.worlds?.[this.selection] ?? null);
  }

  private showNumbers(selection: Selection): void {
    const { payload, one, method, answer } = this;
    const found = outcome(one, answer, selection, method.split);
    if (found === null) {
      replaceContent(this.words, h("p", {}, "The model's output at this threshold is unknown: the report was written without an explainer."));
      replaceContent(this.numbers);
      replaceContent(this.worldsArea);
      return;
    }
    const labels = this.worlds?.label ?? null;
    replaceContent(this.words, h("p", {}, certificate(payload, one, method, answer, selection, found, labels).join(" ")));
    const yes = (value: boolean | null): string => (value === null ? "unknown" : value ? "yes" : "no");
    const fact = (term: string, help: string, value: string, good: boolean | null): Child =>
      h("div", { class: good === null ? null : good ? "good" : "bad" }, h("dt", { title: help }, term), h("dd", {}, value));
    const flip = (value: boolean | null): boolean | null => (value === null ? null : !value);
    replaceContent(
      this.numbers,
      h(
        "dl",
        { class: "numbers" },
        fact("class changes without it (Fid+)", "Yes is better.", yes(found.changes_without), found.changes_without),
        fact("class changes with it alone (Fid−)", "No is better.", yes(found.changes_alone), flip(found.changes_alone)),
        fact("PNS ≥", "Lower bound of the probability of necessity and sufficiency", atLeast(found.pns), null),
        fact("PN ≥", "Lower bound of the probability of necessity", atLeast(found.pn), null),
        fact("PS ≥", "Lower bound of the probability of sufficiency", atLeast(found.ps), null),
      ),
    );
    replaceContent(this.worldsArea, this.worldsTable(found.p_factual, found.p_complement));
  }

  private worldsTable(factual: number, complement: number): HTMLElement {
    const { payload, one, method } = this;
    const names = worldNames(payload, method);
    const worlds = this.worlds;
    const p = worlds?.p ?? [factual, complement];
    const shown = worlds === null ? [names[0], "all but the kept part"] : names;
    const lines = shown.map((name, n) => this.world(name ?? "", p[n] ?? 0, worlds?.label[n] ?? null, n > 0 && method.split.length > 1 ? (method.split[n - 1] ?? null) : null));
    const head = one.p === null ? [] : [this.world("the whole graph", one.p, one.predicted, null)];
    const column = (text: string): Child => h("th", { scope: "col" }, text);
    return h(
      "table",
      { class: "worlds" },
      h("caption", {}, `p: probability of ${className(payload, one.target)}`),
      h("thead", {}, h("tr", {}, column("The model sees"), column("p"), column("says"))),
      h("tbody", {}, ...head, ...lines),
    );
  }

  private world(name: string, p: number, label: number | null, share: number | null): Child {
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
    (bar.firstElementChild as HTMLElement).style.width = `${Math.round(100 * p)}%`;
    return h(
      "tr",
      { class: label === null || label === this.one.target ? null : "other" },
      h("th", { scope: "row", title: share === null ? null : `weight ${number(share, 2)} in the mean` }, name),
      h("td", { class: "numeric" }, bar, number(p)),
      h("td", {}, label === null ? "–" : className(this.payload, label)),
    );
  }

  /** Lists of the kept elements; pointing at an entry highlights the element in the picture. */
  private keptLists(shown: Kept): Child[] {
    const { payload, one, answer, method } = this;
    const { graph } = one;
    const item = (id: string, text: string, weight: string | null): HTMLElement => {
      const on = (): void => this.drawing.highlight(id);
      const off = (): void => this.drawing.highlight(null);
      const choose = (): void => this.drawing.select(id);
      return h("li", {}, h("button", { type: "button", class: "plain", mouseenter: on, mouseleave: off, focus: on, blur: off, click: choose }, text), weight !== null && h("span", { class: "weight" }, ` ${weight}`));
    };
    const largestWeight = (n: number, ...entries: (MaskEntries | null)[]): number => Math.max(...entries.map((m) => m?.weight[n] ?? -1));
    const byWeight = (places: Iterable<number>, ...entries: (MaskEntries | null)[]): number[] =>
      [...places].sort((a, b) => largestWeight(b, ...entries) - largestWeight(a, ...entries) || a - b);
    const found: Child[] = [];
    const size = this.selection === null ? answer.size : (answer.stops.size[this.selection] ?? [0, 0, 0]);
    const block = (count: number, word: string, items: HTMLElement[]): void => {
      const list = items.length ? h("ol", {}, ...items) : h("p", {}, "None.");
      const listed = items.length === count ? "" : ` (${items.length} listed)`;
      found.push(h("details", { open: items.length <= (answer.directed ? 30 : 15), class: "kept-list" }, h("summary", {}, `${plural(count, word)} kept, by weight${listed}`), list));
    };
    const weightText = (entries: MaskEntries | null, n: number): string => number((entries?.weight[n] ?? 0) / 1000);
    if (method.edges) {
      const lines = byWeight(shown.lines.keys(), answer.lines, answer.back);
      const entries = lines.flatMap((n) => keptDirections(graph, answer, n, shown.lines.get(n)).map((way): [number, Direction] => [n, way]));
      block(size[0], edgeWord(payload, answer), entries.map(([n, way]) => item(`e${n}`, lineName(payload, graph, n, way), lineWeight(answer, n, way))));
    }
    if (answer.nodes !== null && answer.cells === undefined) {
      block(size[1], nodeWord(payload), byWeight(shown.nodes.keys(), answer.nodes).map((n) => item(`n${n}`, nodeName(payload, graph, n), weightText(answer.nodes, n))));
    }
    if (answer.cells !== undefined) found.push(this.featureTable(size[2], byWeight(shown.cells, answer.cells)));
    if (answer.features !== null) {
      block(size[2], "feature", byWeight(shown.features, answer.features).map((n) => h("li", {}, featureName(payload, n), h("span", { class: "weight" }, ` ${weightText(answer.features, n)}`))));
    }
    return found;
  }

  /** The kept features of nodes by name and value. */
  private featureTable(count: number, listed: number[]): HTMLElement {
    const { payload, one, answer } = this;
    const cells = answer.cells as Cells;
    const column = (text: string, kind: string | null = null): Child => h("th", { scope: "col", class: kind }, text);
    const row = (n: number): Child => {
      const id = `n${cells.node[n]}`;
      const on = (): void => this.drawing.highlight(id);
      const off = (): void => this.drawing.highlight(null);
      const name = h("button", { type: "button", class: "plain", focus: on, blur: off, click: () => this.drawing.select(id) }, nodeName(payload, one.graph, cells.node[n] ?? 0));
      return h(
        "tr",
        { mouseenter: on, mouseleave: off },
        h("th", { scope: "row" }, name),
        h("td", {}, featureValue(payload, cells, n)),
        h("td", { class: "numeric weight" }, number((cells.weight[n] ?? 0) / 1000)),
      );
    };
    const listedWords = listed.length === count ? "" : ` (${listed.length} listed)`;
    const head = h("thead", {}, h("tr", {}, column(payload.molecules ? "Atom" : "Node"), column("Feature"), column("Weight", "numeric")));
    const table = h("table", { class: "features" }, h("caption", {}, "Kept features by weight"), head, h("tbody", {}, ...listed.map(row)));
    return h("details", { open: true, class: "kept-list" }, h("summary", {}, `${plural(count, "feature")} kept, by weight${listedWords}`), listed.length ? table : h("p", {}, "None."));
  }

  private nodeTip(index: number): string[] {
    const { payload, one, answer } = this;
    const { graph } = one;
    const what = payload.molecules ? null : groupName(payload, graph, index);
    const weight = answer.nodes?.weight[index];
    const shown = kept(answer, this.selection);
    return [
      `${graph.name === null ? "node " : ""}${nodeName(payload, graph, index)}`,
      ...(what === null ? [] : [`${payload.grouping === "predicted" ? "predicted: " : payload.grouping === "true" ? "true class: " : ""}${what}`]),
      ...(graph.mistaken === null ? [] : [`true class: ${className(payload, trueClass(graph, index))}`]),
      ...(graph.target.includes(index) ? ["explained"] : []),
      ...(weight === undefined ? [] : [`${answer.cells === undefined ? "weight" : "largest weight of a feature"} ${number(weight / 1000)}`]),
      ...(answer.cells !== undefined ? keptFeatures(payload, answer, shown, index) : shown.nodes.has(index) ? ["kept"] : []),
      ...(graph.truth_nodes.includes(index) ? ["in the ground truth"] : []),
    ];
  }

  private lineTip(line: number): string[] {
    const { payload, one, answer } = this;
    const { graph } = one;
    const order = graph.order?.[line];
    const direction = kept(answer, this.selection).lines.get(line);
    return [
      lineName(payload, graph, line),
      ...(order === undefined ? [] : [`${bondName(order)} bond`]),
      ...lineWeights(payload, graph, answer, line),
      ...(direction === undefined ? [] : [direction === "both" ? "kept" : `kept: ${lineName(payload, graph, line, direction)}`]),
      ...(graph.truth?.includes(line) ? ["in the ground truth"] : []),
    ];
  }

  private legend(): HTMLElement {
    const { payload, one, method, answer } = this;
    const { graph } = one;
    const swatch = (kind: string, text: string, tint: string | null = null): Child => {
      const mark = h("span", { class: `swatch ${kind}`, "aria-hidden": "true" });
      if (tint !== null) mark.style.backgroundColor = tint;
      return h("li", {}, mark, text);
    };
    const unnamed = payload.molecules ? [] : (graph.group ?? []).filter((_, index) => groupName(payload, graph, index) !== null);
    const groups = [...new Set(unnamed)].sort((a, b) => a - b);
    return h(
      "ul",
      { class: "legend", "aria-label": "Legend" },
      method.edges && swatch("line", `kept ${lineWord(payload)}`),
      answer.back !== null && swatch("arrow", "kept in this direction only"),
      method.node_mask === "object" && swatch("ring", `kept ${nodeWord(payload)}`),
      method.node_mask === "attributes" && swatch("ring pie", `${nodeWord(payload)} with kept features (filled share)`),
      method.node_mask === "common_attributes" && h("li", {}, `the kept features are those of all ${nodeWord(payload)}s`),
      graph.target.length > 0 && swatch(payload.grouping === "type" ? "large" : "diamond", payload.level === "edge" ? "ends of the explained link" : "explained node"),
      groups.length > 0 && h("li", { class: "title" }, `${colourWords(payload)}:`),
      ...groups.map((g) => swatch(`dot ${groupShape(payload, g)}`, payload.groups[g] ?? "", groupColour(g))),
      graph.mistaken !== null && graph.mistaken.length > 0 && swatch("outer", "ring: true class, where it is another"),
      graph.truth !== null && h("li", { class: "truth-only" }, h("span", { class: "swatch band", "aria-hidden": "true" }), "ground truth"),
      graph.left_out > 0 && h("li", {}, `${graph.left_out} lines with low weights are not drawn`),
      graph.hint !== null && h("li", { class: "hint" }, graph.hint),
    );
  }
}

/** The directions of a kept line to list: one entry per direction where each direction counts. */
function keptDirections(graph: Graph, answer: MethodAnswer, line: number, direction: Direction = "both"): Direction[] {
  const loop = graph.source[line] === graph.end[line];
  return answer.directed && direction === "both" && !loop ? ["forward", "backward"] : [direction];
}

/** How many features of a node are kept, and which, as far as they are listed. */
function keptFeatures(payload: Payload, answer: MethodAnswer, shown: Kept, node: number): string[] {
  const { cells, of } = answer;
  if (cells === undefined) return [];
  const width = cells.width?.[node] ?? of[2] / of[1];
  const listed = [...shown.cells].filter((n) => cells.node[n] === node).map((n) => featureValue(payload, cells, n));
  const count = Math.round((shown.nodes.get(node) ?? 0) * width);
  const names = listed.slice(0, MAX_FEATURES).join(", ") + (count > Math.min(listed.length, MAX_FEATURES) ? ", …" : "");
  return [`${count} of ${plural(width, "feature")} kept${count ? `: ${names}` : ""}`];
}
