/** One instance: the prediction, and a panel for each method. */

import { replaceContent, h, sentence } from "./dom";
import { Panel } from "./panel";
import type { Change, Instance, Payload } from "./payload";
import { linkTo, isCorrect } from "./state";
import { className, instanceName, plural } from "./words";

/** The reader's choices, which stay the same from instance to instance. */
export interface DisplayOptions {
  methods: Set<number>;
  truth: boolean;
  hydrogens: boolean;
}

/** Ids of the previous and next instance in the list, and the position of this one, such as "3 of 8". */
export interface Neighbours {
  previous: number | null;
  next: number | null;
  position: string;
}

export class InstanceView {
  readonly element: HTMLElement;
  private panels: Panel[] = [];
  private readonly change: HTMLElement | null;
  private readonly nav = h("nav", { class: "steps", "aria-label": "Neighbours in the list" });
  private readonly panelArea = h("div", { class: "panels" });

  constructor(
    private readonly payload: Payload,
    private readonly one: Instance,
    private readonly options: DisplayOptions,
    neighbours: Neighbours,
  ) {
    this.showNeighbours(neighbours);
    this.change = one.change === null ? null : this.changeBox(one.change);
    this.element = h(
      "article",
      {},
      h("div", { class: "heading" }, h("h2", { id: "instance-title", tabindex: -1 }, `${instanceName(payload, one)}: ${className(payload, one.target)}`), this.verdict(), this.nav),
      this.panelArea,
      this.optionControls(),
    );
  }

  /** Show links to the previous and the next instance in the list. */
  showNeighbours(neighbours: Neighbours): void {
    const step = (id: number | null, text: string): HTMLElement =>
      id === null ? h("span", { class: "off" }, text) : h("a", { href: linkTo(id) }, text);
    replaceContent(this.nav, step(neighbours.previous, "← previous"), h("span", {}, neighbours.position), step(neighbours.next, "next →"));
  }

  /** Draw the panels; call it once the element is on the page. */
  mount(): void {
    this.drawPanels();
  }

  unmount(): void {
    for (const panel of this.panels) panel.unmount();
    this.panels = [];
  }

  private drawPanels(): void {
    this.unmount();
    const shown = this.one.answers.flatMap((answer, n) => (answer !== null && this.options.methods.has(n) ? [{ answer, n }] : []));
    const many = this.payload.methods.length > 1;
    this.panels = shown.map(({ answer, n }) => new Panel(this.payload, this.one, n, answer, many));
    this.panelArea.classList.toggle("several", this.panels.length > 1);
    this.panelArea.replaceChildren(...this.panels.map((panel) => panel.element));
    if (!this.panels.length) this.panelArea.append(h("p", {}, "None of the selected methods explains this instance."));
    if (this.change !== null) {
      if (this.panels.length === 1) this.panelArea.querySelector(".answer")?.append(this.change);
      else this.panelArea.before(this.change);
    }
    for (const panel of this.panels) panel.mount();
    this.applyOptions();
  }

  private applyOptions(): void {
    this.element.classList.toggle("with-truth", this.options.truth);
    for (const { drawing } of this.panels) {
      drawing.showTruth(this.options.truth);
      drawing.showHydrogens(this.options.hydrogens);
    }
  }

  /** Whether the prediction is right, if that is known. */
  private verdict(): HTMLElement | null {
    const correct = isCorrect(this.one);
    if (correct === null) return null;
    const text = correct ? "The prediction is right." : `The prediction is wrong: the true class is ${className(this.payload, this.one.label)}.`;
    return h("p", { class: `verdict ${correct ? "correct" : "wrong"}` }, text);
  }

  /** The smallest change in words, with a button that marks the removed lines. */
  private changeBox(change: Change): HTMLElement {
    const mark = h("button", { type: "button", "aria-pressed": "false", click: () => this.toggleChange(mark, change) }, "Show it");
    return h(
      "aside",
      { class: "change", "aria-label": "Smallest change" },
      h("span", { class: "badge" }, change.changed ? "smallest change" : "no change found"),
      " ",
      ...sentence(change.sentence),
      " ",
      h("span", { class: "quiet" }, change.certainty),
      change.lines.length > 0 && mark,
    );
  }

  private toggleChange(mark: HTMLElement, change: Change): void {
    const on = mark.getAttribute("aria-pressed") !== "true";
    mark.setAttribute("aria-pressed", String(on));
    for (const { drawing } of this.panels) drawing.markRemoved(on ? change.lines : []);
  }

  private optionControls(): HTMLElement {
    const { payload, one, options } = this;
    const { graph } = one;
    const box = (text: string, on: boolean, change: (on: boolean) => void): HTMLElement => {
      const input = h("input", { type: "checkbox", checked: on, change: () => change(input.checked) });
      return h("label", {}, input, ` ${text}`);
    };
    const group = h("div", { class: "choices" });
    if (payload.methods.length > 1) {
      const boxes = payload.methods.map((method, n) =>
        box(method.name, options.methods.has(n), (on) => {
          if (on) options.methods.add(n);
          else options.methods.delete(n);
          this.drawPanels();
        }),
      );
      group.append(h("fieldset", {}, h("legend", {}, "Methods to compare"), ...boxes));
    }
    if (graph.truth !== null) {
      const outside = graph.truth_outside > 0 ? ` (${plural(graph.truth_outside, "edge")} outside the receptive field)` : "";
      group.append(box(`show the ground truth${outside}`, options.truth, (on) => ((options.truth = on), this.applyOptions())));
    }
    if (payload.molecules) {
      group.append(box("show all hydrogen atoms", options.hydrogens, (on) => ((options.hydrogens = on), this.applyOptions())));
    }
    return group;
  }
}

