/** One method's answer to one instance: picture, slider, worlds, certificate, list. */

import { fill, h, labelled, type Child } from "./dom";
import { Drawing, groupColour, spoken } from "./drawing";
import type { Answer, Instance, Marks, Method, Payload, Worlds } from "./payload";
import { kept, oneWay, outcome, type Cut, type Kept } from "./state";
import { atLeast, bondName, certificate, className, cutWords, groupName, lineName, lineWeight, lineWeights, lineWord, nodeName, nodeWord, number, oneWayWords, plural, setting, sizeWords, worldNames } from "./words";

export class Panel {
  readonly element: HTMLElement;
  readonly drawing: Drawing;
  private cut: Cut = null;
  private readonly method: Method;
  private readonly slider: HTMLInputElement;
  private readonly whole: HTMLInputElement;
  private readonly some: HTMLInputElement;
  private readonly stands = h("p", { class: "stands", "aria-live": "polite" });
  private readonly numbers = h("div");
  private readonly words = h("div", { class: "certificate" });
  private readonly list = h("div");

  constructor(
    private readonly payload: Payload,
    private readonly one: Instance,
    place: number,
    private readonly answer: Answer,
    many: boolean,
  ) {
    this.method = payload.methods[place] as Method;
    const name = `cut-${place}`;
    this.drawing = new Drawing(payload, one, `${this.method.name}: ${spoken(payload, one)}`, {
      node: (n) => this.nodeTip(n),
      line: (n) => this.lineTip(n),
    });
    this.whole = h("input", { type: "radio", name, checked: true, change: () => this.move(null) });
    this.some = h("input", { type: "radio", name, change: () => this.move(Number(this.slider.value)) });
    const last = answer.stops.least.length - 1;
    this.slider = h("input", { type: "range", min: 0, max: last, step: 1, value: this.first(), input: () => this.move(Number(this.slider.value)) });
    this.element = h(
      "section",
      { class: "panel", "aria-label": this.method.name },
      many && h("h3", {}, this.method.name),
      h("div", { class: "picture" }, this.drawing.element, this.legend()),
      h(
        "div",
        { class: "story" },
        h(
          "fieldset",
          { class: "cut" },
          h("legend", {}, "What is kept"),
          h("label", {}, this.whole, ` the explanation: ${sizeWords(payload, this.method, answer.size) || "nothing"}`),
          h("label", {}, this.some, " what weighs most, cut at a threshold:"),
          labelled("Threshold, from nothing to everything", this.slider),
        ),
        this.stands,
        this.words,
        this.numbers,
        answer.words !== null && this.proof(answer.words),
        this.list,
      ),
    );
    this.move(null);
  }

  private proof(words: string): HTMLElement {
    const apart = this.method.edges && setting(this.method, "undirected") === "False";
    const note = apart && h("p", { class: "note" }, `It counts each direction of ${this.payload.molecules ? "a bond" : "an edge"} by itself.`);
    return h("details", {}, h("summary", {}, "Certificate"), h("p", {}, words), note);
  }

  start(): void {
    this.drawing.start();
  }

  stop(): void {
    this.drawing.stop();
  }

  /** Where the slider stands before it is used: the stop that keeps as much as the explanation. */
  private first(): number {
    const total = (size: number[]): number => size.reduce((a, b) => a + b, 0);
    const found = this.answer.stops.size.findIndex((size) => total(size) >= total(this.answer.size));
    return found < 0 ? this.answer.stops.size.length - 1 : found;
  }

  private move(cut: Cut): void {
    this.cut = cut;
    this.whole.checked = cut === null;
    this.some.checked = cut !== null;
    const shown = kept(this.answer, cut);
    this.drawing.show(shown);
    const text = cutWords(this.payload, this.method, this.answer, cut) + oneWayWords(this.payload, oneWay(this.answer, shown));
    this.slider.setAttribute("aria-valuetext", cutWords(this.payload, this.method, this.answer, Number(this.slider.value)));
    this.stands.textContent = text;
    this.tell(cut);
    fill(this.list, ...this.listed(shown));
  }

  private get worlds(): Worlds | null {
    return this.cut === null ? this.answer.worlds : (this.answer.stops.worlds?.[this.cut] ?? null);
  }

  private tell(cut: Cut): void {
    const { payload, one, method, answer } = this;
    const found = outcome(one, answer, cut, method.split);
    if (found === null) {
      fill(this.words, h("p", {}, "The model was not asked at this threshold: the report was written without an explainer."));
      fill(this.numbers);
      return;
    }
    const labels = this.worlds?.label ?? null;
    fill(this.words, h("p", {}, certificate(payload, one, method, answer, cut, found, labels).join(" ")));
    const yes = (value: boolean | null): string => (value === null ? "not known" : value ? "yes" : "no");
    const fact = (term: string, help: string, value: string, good: boolean | null): Child =>
      h("div", { class: good === null ? null : good ? "good" : "bad" }, h("dt", { title: help }, term), h("dd", {}, value));
    const flip = (value: boolean | null): boolean | null => (value === null ? null : !value);
    fill(
      this.numbers,
      h(
        "dl",
        { class: "numbers" },
        fact("class changes without it (Fid+)", "It should.", yes(found.changes_without), found.changes_without),
        fact("class changes with it alone (Fid−)", "It should not.", yes(found.changes_alone), flip(found.changes_alone)),
        fact("PNS ≥", "Probability of necessity and sufficiency, a lower bound", atLeast(found.pns), null),
        fact("PN ≥", "Probability of necessity, a lower bound", atLeast(found.pn), null),
        fact("PS ≥", "Probability of sufficiency, a lower bound", atLeast(found.ps), null),
      ),
      this.worldsTable(found.p_factual, found.p_complement),
    );
  }

  private worldsTable(factual: number, complement: number): HTMLElement {
    const { payload, one, method } = this;
    const names = worldNames(payload, method);
    const worlds = this.worlds;
    const p = worlds?.p ?? [factual, complement];
    const shown = worlds === null ? [names[0], "all but what is kept"] : names;
    const lines = shown.map((name, n) => this.world(name ?? "", p[n] ?? 0, worlds?.label[n] ?? null, n > 0 && method.split.length > 1 ? (method.split[n - 1] ?? null) : null));
    const head = one.p === null ? [] : [this.world("the whole graph", one.p, one.predicted, null)];
    const column = (text: string): Child => h("th", { scope: "col" }, text);
    return h(
      "table",
      { class: "worlds" },
      h("caption", {}, `Worlds, and how likely “${className(payload, one.target)}” is in each`),
      h("thead", {}, h("tr", {}, column("What is left of the graph"), column("p"), column("The model says"))),
      h("tbody", {}, ...head, ...lines),
    );
  }

  private world(name: string, p: number, label: number | null, share: number | null): Child {
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
    (bar.firstElementChild as HTMLElement).style.width = `${Math.round(100 * p)}%`;
    return h(
      "tr",
      { class: label === null || label === this.one.target ? null : "other" },
      h("th", { scope: "row", title: share === null ? null : `counts ${number(share, 2)} in the mean` }, name),
      h("td", { class: "numeric" }, bar, number(p)),
      h("td", {}, label === null ? "–" : className(this.payload, label)),
    );
  }

  /** What is kept as text, which also points at it in the picture. */
  private listed(shown: Kept): Child[] {
    const { payload, one, answer, method } = this;
    const { graph } = one;
    const item = (id: string, text: string, weight: string | null): HTMLElement => {
      const on = (): void => this.drawing.point(id);
      const off = (): void => this.drawing.point(null);
      return h("li", {}, h("button", { type: "button", class: "plain", mouseenter: on, mouseleave: off, focus: on, blur: off }, text), weight !== null && h("span", { class: "weight" }, ` ${weight}`));
    };
    const heaviest = (n: number, ...marks: (Marks | null)[]): number => Math.max(...marks.map((m) => m?.weight[n] ?? -1));
    const byWeight = (places: Iterable<number>, ...marks: (Marks | null)[]): number[] =>
      [...places].sort((a, b) => heaviest(b, ...marks) - heaviest(a, ...marks) || a - b);
    const found: Child[] = [];
    const block = (word: string, items: HTMLElement[]): void => {
      const list = items.length ? h("ol", {}, ...items) : h("p", {}, "None.");
      found.push(h("details", { open: items.length <= 15, class: "kept-list" }, h("summary", {}, `${plural(items.length, word)} kept, by weight`), list));
    };
    const thousandths = (marks: Marks | null, n: number): string => number((marks?.weight[n] ?? 0) / 1000);
    if (method.edges) {
      const lines = byWeight(shown.lines.keys(), answer.lines, answer.back);
      block(lineWord(payload), lines.map((n) => item(`e${n}`, lineName(payload, graph, n, shown.lines.get(n)), lineWeight(answer, n, shown.lines.get(n)))));
    }
    if (answer.nodes !== null) {
      block(nodeWord(payload), byWeight(shown.nodes, answer.nodes).map((n) => item(`n${n}`, nodeName(payload, graph, n), thousandths(answer.nodes, n))));
    }
    if (answer.features !== null) {
      block("feature", byWeight(shown.features, answer.features).map((n) => h("li", {}, `feature ${n}`, h("span", { class: "weight" }, ` ${thousandths(answer.features, n)}`))));
    }
    return found;
  }

  private nodeTip(place: number): string[] {
    const { payload, one, answer } = this;
    const { graph } = one;
    const what = payload.molecules ? null : groupName(payload, graph, place);
    const weight = answer.nodes?.weight[place];
    return [
      `${payload.molecules ? "" : "node "}${nodeName(payload, graph, place)}`,
      ...(what === null ? [] : [what]),
      ...(graph.target.includes(place) ? ["explained"] : []),
      ...(weight === undefined ? [] : [`weight ${number(weight / 1000)}`]),
      ...(kept(answer, this.cut).nodes.has(place) ? ["kept"] : []),
      ...(graph.truth_nodes.includes(place) ? ["in the ground truth"] : []),
    ];
  }

  private lineTip(line: number): string[] {
    const { payload, one, answer } = this;
    const { graph } = one;
    const order = graph.order?.[line];
    const way = kept(answer, this.cut).lines.get(line);
    return [
      lineName(payload, graph, line),
      ...(order === undefined ? [] : [`${bondName(order)} bond`]),
      ...lineWeights(payload, graph, answer, line),
      ...(way === undefined ? [] : [way === "both" ? "kept" : `kept: ${lineName(payload, graph, line, way)}`]),
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
    const unsaid = payload.molecules ? [] : (graph.group ?? []).filter((_, place) => groupName(payload, graph, place) !== null);
    const groups = [...new Set(unsaid)].sort((a, b) => a - b);
    return h(
      "ul",
      { class: "legend", "aria-label": "Legend" },
      method.edges && swatch("line", `kept ${lineWord(payload)}`),
      answer.back !== null && swatch("arrow", "in this direction only"),
      method.nodes && !method.features && swatch("ring", `kept ${nodeWord(payload)}`),
      graph.target.length > 0 && swatch("diamond", payload.level === "edge" ? "ends of the explained link" : "explained node"),
      ...groups.map((g) => swatch("dot", payload.groups[g] ?? "", groupColour(payload, g))),
      graph.truth !== null && h("li", { class: "truth-only" }, h("span", { class: "swatch band", "aria-hidden": "true" }), "ground truth"),
      graph.left_out > 0 && h("li", {}, `${graph.left_out} more edges of little weight are not drawn`),
    );
  }
}
