/** A table that is sorted by clicking on column headers. */

import { h, replaceContent, type Child } from "./dom";
import { sorted, type Key } from "./state";

export interface Column<T> {
  name: string;
  help?: string | null;
  numeric?: boolean;
  /** Whether the first click sorts in descending order. */
  descending?: boolean;
  key: (row: T) => Key;
  cell: (row: T) => Child;
}

/** Rows that are drawn at once; more follow when the reader scrolls to them. */
const CHUNK = 300;

export class SortableTable<T> {
  readonly element: HTMLTableElement;
  /** The rows in display order. */
  shown: T[] = [];
  private readonly body = h("tbody");
  private readonly headers: HTMLTableCellElement[];
  private rows: readonly T[] = [];
  private drawn = 0;
  private readonly end = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && this.drawTo(this.drawn + CHUNK));
  private sortColumn: number | null = null;
  private descending = false;

  constructor(
    caption: string,
    private readonly columns: Column<T>[],
    private readonly decorate: (row: T, line: HTMLTableRowElement) => void = () => {},
    private readonly onSort: () => void = () => {},
  ) {
    this.headers = columns.map((column, index) =>
      h(
        "th",
        { scope: "col", class: column.numeric ? "numeric" : null, "aria-sort": "none" },
        h("button", { type: "button", class: "sort", title: column.help ?? null, click: () => this.sort(index) }, column.name),
      ),
    );
    this.element = h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, ...this.headers)), this.body);
  }

  show(rows: readonly T[]): void {
    this.rows = rows;
    this.render();
  }

  private sort(index: number): void {
    this.descending = this.sortColumn === index ? !this.descending : (this.columns[index]?.descending ?? false);
    this.sortColumn = index;
    this.headers.forEach((header, n) =>
      header.setAttribute("aria-sort", n !== index ? "none" : this.descending ? "descending" : "ascending"),
    );
    this.render();
    this.onSort();
  }

  private render(): void {
    const column = this.sortColumn === null ? null : (this.columns[this.sortColumn] ?? null);
    this.shown = column === null ? [...this.rows] : sorted(this.rows, column.key, this.descending);
    replaceContent(this.body);
    this.drawn = 0;
    this.drawTo(CHUNK);
  }

  /** Draw the rows up to a position, if they are not drawn yet; all of them without one. */
  drawTo(position = Infinity): void {
    const next = this.shown.slice(this.drawn, position);
    this.body.append(...next.map((row) => this.line(row)));
    this.drawn += next.length;
    this.end.disconnect();
    if (this.drawn < this.shown.length && this.body.lastElementChild) this.end.observe(this.body.lastElementChild);
  }

  private line(row: T): HTMLTableRowElement {
    const cells = this.columns.map((c, n) => h(n ? "td" : "th", n ? { class: c.numeric ? "numeric" : null } : { scope: "row" }, c.cell(row)));
    const line = h("tr", {}, ...cells);
    this.decorate(row, line);
    return line;
  }
}
