/** One instance: what was predicted, and a panel for each method. */

import { fill, h } from "./dom";
import { Panel } from "./panel";
import type { Instance, Payload } from "./payload";
import { linkTo, rightness } from "./state";
import { className, instanceName, number, plural } from "./words";

/** What the reader has chosen, kept from instance to instance. */
export interface Choice {
  methods: Set<number>;
  truth: boolean;
  hydrogens: boolean;
}

/** What comes before and after in the list, and where this stands. */
export interface Neighbours {
  before: number | null;
  after: number | null;
  place: string;
}

export class InstanceView {
  readonly element: HTMLElement;
  private panels: Panel[] = [];
  private readonly nav = h("nav", { class: "steps", "aria-label": "Neighbours in the list" });
  private readonly space = h("div", { class: "panels" });

  constructor(
    private readonly payload: Payload,
    private readonly one: Instance,
    private readonly choice: Choice,
    neighbours: Neighbours,
  ) {
    this.steps(neighbours);
    this.element = h(
      "article",
      {},
      this.nav,
      h("h2", { id: "instance-title", tabindex: -1 }, `${instanceName(payload, one)}: ${className(payload, one.target)}`),
      this.verdict(),
      this.choices(),
      this.space,
    );
  }

  /** Say what comes before and after in the list. */
  steps(neighbours: Neighbours): void {
    const step = (id: number | null, text: string): HTMLElement =>
      id === null ? h("span", { class: "off" }, text) : h("a", { href: linkTo(id) }, text);
    fill(this.nav, step(neighbours.before, "← previous"), h("span", {}, neighbours.place), step(neighbours.after, "next →"));
  }

  /** Draw, once the element is on the page. */
  start(): void {
    this.draw();
  }

  stop(): void {
    for (const panel of this.panels) panel.stop();
    this.panels = [];
  }

  private draw(): void {
    this.stop();
    const shown = this.one.answers.flatMap((answer, n) => (answer !== null && this.choice.methods.has(n) ? [{ answer, n }] : []));
    const many = this.payload.methods.length > 1;
    this.panels = shown.map(({ answer, n }) => new Panel(this.payload, this.one, n, answer, many));
    this.space.classList.toggle("several", this.panels.length > 1);
    this.space.replaceChildren(...this.panels.map((panel) => panel.element));
    if (!this.panels.length) this.space.append(h("p", {}, "None of the chosen methods explains this instance."));
    for (const panel of this.panels) panel.start();
    this.mark();
  }

  private mark(): void {
    this.element.classList.toggle("with-truth", this.choice.truth);
    for (const { drawing } of this.panels) {
      drawing.showTruth(this.choice.truth);
      drawing.showHydrogens(this.choice.hydrogens);
    }
  }

  private verdict(): HTMLElement {
    const { payload, one } = this;
    const right = rightness(one);
    const predicted = one.predicted !== null && one.predicted !== one.target ? `The model predicts “${className(payload, one.predicted)}”. ` : "";
    const explained = one.p === null ? `Explained: “${className(payload, one.target)}”.` : `The model gives “${className(payload, one.target)}” with p = ${number(one.p)}.`;
    const text = right === null ? "" : right ? " That is right." : ` That is wrong: it is “${className(payload, one.label)}”.`;
    return h("p", { class: "verdict" }, predicted + explained, text !== "" && h("strong", { class: right ? "right" : "wrong" }, text));
  }

  private choices(): HTMLElement {
    const { payload, one, choice } = this;
    const { graph } = one;
    const box = (text: string, on: boolean, change: (on: boolean) => void): HTMLElement => {
      const input = h("input", { type: "checkbox", checked: on, change: () => change(input.checked) });
      return h("label", {}, input, ` ${text}`);
    };
    const group = h("div", { class: "choices" });
    if (payload.methods.length > 1) {
      const boxes = payload.methods.map((method, n) =>
        box(method.name, choice.methods.has(n), (on) => {
          if (on) choice.methods.add(n);
          else choice.methods.delete(n);
          this.draw();
        }),
      );
      group.append(h("fieldset", {}, h("legend", {}, "Methods side by side"), ...boxes));
    }
    if (graph.truth !== null) {
      const outside = graph.truth_outside > 0 ? ` (${plural(graph.truth_outside, "edge")} of it out of the model's reach)` : "";
      group.append(box(`show the ground truth${outside}`, choice.truth, (on) => ((choice.truth = on), this.mark())));
    }
    if (payload.molecules) {
      group.append(box("show all hydrogen atoms", choice.hydrogens, (on) => ((choice.hydrogens = on), this.mark())));
    }
    return group;
  }
}

