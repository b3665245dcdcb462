/** The list of instances: search, filter, sort. */

import { h, labelled, replaceContent } from "./dom";
import type { Payload, Verdict } from "./payload";
import { NO_FILTER, applyFilter, countVerdicts, linkTo, rows, type Filter, type Range, type Row } from "./state";
import { SortableTable } from "./table";
import { className, levelName, plural } from "./words";

export class InstanceList {
  readonly element: HTMLElement;
  private filter: Filter = { ...NO_FILTER };
  private all: Row[] = [];
  private current: number | null = null;
  private readonly table: SortableTable<Row>;
  private readonly count = h("p", { class: "count", role: "status" });
  private readonly verdicts = h("div", { class: "verdicts", role: "group", "aria-label": "Verdicts" });

  constructor(
    private readonly payload: Payload,
    private readonly changed: () => void,
  ) {
    const names = new Map(payload.verdicts);
    const verdict = (row: Row): string => (row.verdict === null ? "–" : (names.get(row.verdict) ?? "–"));
    const known = payload.instances.some((one) => one.label !== null && one.predicted !== null);
    const truth = (row: Row): string => (row.correct === null ? "–" : row.correct ? "right" : "wrong");
    this.table = new SortableTable<Row>(
      "Instances",
      [
        { name: levelName(payload), key: (row) => row.name, cell: (row) => h("a", { href: linkTo(row.id) }, row.name) },
        { name: "Class", help: "the explained class", key: (row) => className(payload, row.target), cell: (row) => className(payload, row.target) },
        ...(known ? [{ name: "Model", help: "whether the model predicts the true class", key: truth, cell: (row: Row) => h("span", { class: truth(row) === "wrong" ? "wrong" : null }, truth(row)) }] : []),
        { name: "Holds", help: "whether the explanation is necessary and sufficient: yes, in part, or no", key: (row) => payload.verdicts.findIndex(([key]) => key === row.verdict), cell: (row) => h("span", { class: `verdict-word ${row.verdict ?? ""}`, title: verdict(row) }, row.verdict === null ? "–" : HOLDS[row.verdict]) },
        { name: sizeName(payload), help: `number of ${sizeUnit(payload)} in the explanation`, numeric: true, key: (row) => row.size, cell: (row) => (row.size === null ? "–" : String(row.size)) },
      ],
      (row, line) => line.toggleAttribute("data-current", row.id === this.current),
      () => this.changed(),
    );
    this.element = h("section", { class: "list", "aria-label": "Instances" }, this.verdicts, this.controls(), this.count, h("div", { class: "scroll" }, this.table.element));
    this.chooseMethod(0);
    addEventListener("beforeprint", () => this.table.drawTo());
  }

  /** Ids of the listed instances, in display order. */
  get order(): number[] {
    return this.table.shown.map((row) => row.id);
  }

  /** Mark the open instance. */
  mark(id: number | null): void {
    this.current = id;
    this.element.querySelector("[data-current]")?.removeAttribute("data-current");
    const at = this.table.shown.findIndex((row) => row.id === id);
    if (at < 0) return;
    this.table.drawTo(at + 1);
    const line = this.element.querySelectorAll("tbody tr")[at];
    line?.toggleAttribute("data-current", true);
    const box = line?.closest(".scroll");
    if (line === undefined || !box) return;
    // not scrollIntoView, after which some browsers begin to tab from here instead of the top of the page
    const [inner, outer] = [line.getBoundingClientRect(), box.getBoundingClientRect()];
    box.scrollTop += Math.min(0, inner.top - outer.top) + Math.max(0, inner.bottom - outer.bottom);
  }

  private chooseMethod(method: number): void {
    this.all = rows(this.payload, method);
    this.render();
  }

  private changeFilter(part: Partial<Filter>): void {
    this.filter = { ...this.filter, ...part };
    this.render();
    this.changed();
  }

  private render(): void {
    const some = applyFilter(this.all, this.filter);
    this.table.show(some);
    this.count.textContent = some.length === this.all.length ? plural(some.length, "prediction") : `${some.length} of ${plural(this.all.length, "prediction")}`;
    const counts = countVerdicts(this.all, this.payload.verdicts);
    replaceContent(this.verdicts, ...counts.map((one) => this.verdictButton(...one)));
  }

  /** A verdict with its count, which filters the list. */
  private verdictButton(key: Verdict, name: string, count: number): HTMLElement {
    const on = this.filter.verdict === key;
    return h(
      "button",
      { type: "button", class: `verdict-count ${key}`, "aria-pressed": on ? "true" : "false", title: VERDICT_HELP[key], click: () => this.changeFilter({ verdict: on ? null : key }) },
      h("strong", {}, String(count)),
      ` ${name}`,
    );
  }

  private controls(): HTMLElement {
    const { payload } = this;
    const kept = `${sizeName(payload)} kept`;
    const form = h("form", { role: "search", submit: (event) => event.preventDefault() });
    const search = h("input", { type: "search", placeholder: "name, number or class", input: () => this.changeFilter({ text: search.value }) });
    form.append(labelled("Search", search));
    if (payload.methods.length > 1) {
      form.append(labelled("Method", select(payload.methods.map((m, n) => [String(n), m.name]), (value) => (this.chooseMethod(Number(value)), this.changed()))));
    }
    const present = [...new Set(payload.instances.map((one) => one.target))].sort((a, b) => a - b);
    const classes: [string, string][] = [["", "all"], ...present.map((n): [string, string] => [String(n), className(payload, n)])];
    const more = h(
      "div",
      { class: "more" },
      labelled("Class", select(classes, (value) => this.changeFilter({ target: value === "" ? null : Number(value) }))),
      labelled("Prediction", select([["", "all"], ["correct", "right"], ["wrong", "wrong"]], (value) => this.changeFilter({ correct: value === "" ? null : value === "correct" }))),
      range("PNS", 1, (pns) => this.changeFilter({ pns })),
      range(kept, null, (size) => this.changeFilter({ size })),
      h("button", { type: "reset", click: () => ((this.filter = { ...NO_FILTER }), this.chooseMethod(0), this.changed()) }, "Reset filters"),
    );
    form.append(h("details", { class: "filters" }, h("summary", {}, "Filters"), more));
    return form;
  }
}

/** What the list says of a verdict: whether the explanation holds. */
const HOLDS: Record<Verdict, string> = { both: "yes", sufficient: "in part", necessary: "in part", neither: "no", unexplained: "no", unknown: "–" };

const VERDICT_HELP: Record<Verdict, string> = {
  both: "The model says the same with the explanation alone, and another class without it.",
  sufficient: "The model says the same with the explanation alone, but also without it.",
  necessary: "The model says another class without the explanation, but also with it alone.",
  neither: "The explanation is neither necessary nor sufficient.",
  unexplained: "The model says the same without everything that could be in an explanation.",
  unknown: "The report was written without an explainer, so the model was not asked.",
};

/** What the size column counts, in full. */
function sizeUnit(payload: Payload): string {
  const directed = payload.methods[0]?.edges && payload.instances.some((one) => one.answers[0]?.directed);
  return `${directed ? "directed " : ""}${sizeName(payload).toLowerCase()}`;
}

/** What the size column counts. */
function sizeName(payload: Payload): string {
  const [method] = payload.methods;
  if (method?.edges) return payload.molecules ? "Bonds" : "Edges";
  return method?.node_mask !== "object" ? "Features" : payload.molecules ? "Atoms" : "Nodes";
}

function select(options: [string, string][], change: (value: string) => void): HTMLSelectElement {
  const control = h("select", { change: () => change(control.value) }, ...options.map(([value, text]) => h("option", { value }, text)));
  return control;
}

/** Two number inputs, from and to. */
function range(name: string, max: number | null, change: (range: Range) => void): HTMLElement {
  const value = (input: HTMLInputElement): number | null => (input.value === "" ? null : input.valueAsNumber);
  const input = (word: string): HTMLInputElement =>
    h("input", { type: "number", min: 0, max, step: "any", "aria-label": `${name} ${word}`, placeholder: word, input: () => change({ low: value(low), high: value(high) }) });
  const [low, high] = [input("from"), input("to")];
  return h("div", { class: "field", role: "group", "aria-label": name }, h("span", { class: "name" }, name), h("div", { class: "range" }, low, high));
}
