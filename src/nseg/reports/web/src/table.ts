/** A table whose columns can be sorted, with real headers and buttons. */

import { h, fill, type Child } from "./dom";
import { ordered, type Key } from "./state";

export interface Column<T> {
  name: string;
  help?: string | null;
  numeric?: boolean;
  /** Whether the first click puts large values first. */
  descending?: boolean;
  key: (row: T) => Key;
  cell: (row: T) => Child;
}

export class SortableTable<T> {
  readonly element: HTMLTableElement;
  /** The rows in the order in which they are shown. */
  shown: T[] = [];
  private readonly body = h("tbody");
  private readonly heads: HTMLTableCellElement[];
  private rows: readonly T[] = [];
  private by: number | null = null;
  private descending = false;

  constructor(
    caption: string,
    private readonly columns: Column<T>[],
    private readonly mark: (row: T, line: HTMLTableRowElement) => void = () => {},
    private readonly changed: () => void = () => {},
  ) {
    this.heads = columns.map((column, place) =>
      h(
        "th",
        { scope: "col", class: column.numeric ? "numeric" : null, "aria-sort": "none" },
        h("button", { type: "button", class: "sort", title: column.help ?? null, click: () => this.sort(place) }, column.name),
      ),
    );
    this.element = h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, ...this.heads)), this.body);
  }

  show(rows: readonly T[]): void {
    this.rows = rows;
    this.draw();
  }

  private sort(place: number): void {
    this.descending = this.by === place ? !this.descending : (this.columns[place]?.descending ?? false);
    this.by = place;
    this.heads.forEach((head, n) =>
      head.setAttribute("aria-sort", n !== place ? "none" : this.descending ? "descending" : "ascending"),
    );
    this.draw();
    this.changed();
  }

  private draw(): void {
    const column = this.by === null ? null : (this.columns[this.by] ?? null);
    this.shown = column === null ? [...this.rows] : ordered(this.rows, column.key, this.descending);
    fill(
      this.body,
      ...this.shown.map((row) => {
        const cells = this.columns.map((c, n) => h(n ? "td" : "th", n ? { class: c.numeric ? "numeric" : null } : { scope: "row" }, c.cell(row)));
        const line = h("tr", {}, ...cells);
        this.mark(row, line);
        return line;
      }),
    );
  }
}
