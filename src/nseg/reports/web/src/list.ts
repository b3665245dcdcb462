/** The list of instances: search, filter, sort. */

import { h, labelled } from "./dom";
import type { Payload } from "./payload";
import { NO_FILTER, applyFilter, linkTo, rows, type Filter, type Range, type Row } from "./state";
import { SortableTable } from "./table";
import { atLeast, className, levelName, number } from "./words";

export class InstanceList {
  readonly element: HTMLElement;
  private filter: Filter = { ...NO_FILTER };
  private all: Row[] = [];
  private current: number | null = null;
  private readonly table: SortableTable<Row>;
  private readonly count = h("p", { class: "count", role: "status" });

  constructor(
    private readonly payload: Payload,
    private readonly changed: () => void,
  ) {
    const verdict = (row: Row): string => (row.correct === null ? "–" : row.correct ? "correct" : "wrong");
    this.table = new SortableTable<Row>(
      "Instances",
      [
        { name: levelName(payload), key: (row) => row.id, cell: (row) => h("a", { href: linkTo(row.id) }, String(row.id)) },
        { name: "Class", help: "the explained class", key: (row) => className(payload, row.target), cell: (row) => h("span", { title: className(payload, row.target) }, className(payload, row.target)) },
        { name: "Model", help: "whether the model predicts the true class", key: verdict, cell: (row) => h("span", { class: verdict(row) }, verdict(row)) },
        { name: "PNS", help: "lower bound of the probability of necessity and sufficiency", numeric: true, descending: true, key: (row) => row.pns, cell: (row) => (row.pns === null ? number(null) : atLeast(row.pns)) },
        { name: sizeName(payload), help: `number of ${sizeUnit(payload)} in the explanation`, numeric: true, key: (row) => row.size, cell: (row) => (row.size === null ? "–" : String(row.size)) },
      ],
      (row, line) => line.toggleAttribute("data-current", row.id === this.current),
      () => this.changed(),
    );
    this.element = h("section", { class: "list", "aria-label": "Instances" }, this.controls(), this.count, h("div", { class: "scroll" }, this.table.element));
    this.chooseMethod(0);
  }

  /** Ids of the listed instances, in display order. */
  get order(): number[] {
    return this.table.shown.map((row) => row.id);
  }

  /** Mark the open instance. */
  mark(id: number | null): void {
    this.current = id;
    this.render();
    this.element.querySelector("[data-current]")?.scrollIntoView({ block: "nearest" });
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
    this.count.textContent = some.length === this.all.length ? `${some.length} instances` : `${some.length} of ${this.all.length} instances`;
  }

  private controls(): HTMLElement {
    const { payload } = this;
    const kept = `${sizeName(payload)} kept`;
    const form = h("form", { role: "search", submit: (event) => event.preventDefault() });
    const search = h("input", { type: "search", placeholder: "id, name or class", input: () => this.changeFilter({ text: search.value }) });
    form.append(labelled("Search", search));
    if (payload.methods.length > 1) {
      form.append(labelled("Method", select(payload.methods.map((m, n) => [String(n), m.name]), (value) => (this.chooseMethod(Number(value)), this.changed()))));
    }
    const present = [...new Set(payload.instances.map((one) => one.target))].sort((a, b) => a - b);
    const classes: [string, string][] = [["", "all"], ...present.map((n): [string, string] => [String(n), className(payload, n)])];
    form.append(labelled("Class", select(classes, (value) => this.changeFilter({ target: value === "" ? null : Number(value) }))));
    form.append(
      labelled("Prediction", select([["", "all"], ["correct", "correct"], ["wrong", "wrong"]], (value) => this.changeFilter({ correct: value === "" ? null : value === "correct" }))),
      range("PNS", 1, (pns) => this.changeFilter({ pns })),
      range(kept, null, (size) => this.changeFilter({ size })),
      h("button", { type: "reset", click: () => ((this.filter = { ...NO_FILTER }), this.chooseMethod(0), this.changed()) }, "Reset filters"),
    );
    return form;
  }
}

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
