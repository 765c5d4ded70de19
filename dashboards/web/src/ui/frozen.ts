// Rows and columns that stay while the rest scrolls. The grid's own frozen columns touch every row at every scroll, and it
// has no frozen rows: here the style sheet does it (`position: sticky`), and is told how far from the edge each one is.

import type jspreadsheet from "jspreadsheet-ce";

import type { Layout } from "../core/layout";
import { NUMBERS } from "../core/widths";
import type { RowWindow } from "./row-window";

type Worksheet = jspreadsheet.WorksheetInstance;

/** What is frozen of a worksheet. */
export class Frozen {
  private columns = 0;

  constructor(private readonly worksheet: Worksheet, private readonly window: RowWindow) {}

  /** Freezes as the layout says, and marks the columns that are filtered. */
  show({ frozenColumns, filters }: Layout, widths: readonly number[]): void {
    const { table, thead } = this.worksheet;
    this.columns = frozenColumns;
    if (frozenColumns > 0) table.dataset["frozen"] = Array.from({ length: frozenColumns }, (_, column) => column).join(" ");
    else delete table.dataset["frozen"];
    let left = NUMBERS;
    for (let column = 0; column < frozenColumns; column += 1) {
      table.style.setProperty(`--left-${column}`, `${left}px`);
      left += widths[column] ?? 0;
    }
    let top = thead.getBoundingClientRect().height;
    for (const row of this.window.frozenRows()) {
      row.style.setProperty("--top", `${top}px`);
      top += row.getBoundingClientRect().height;
    }
    const filtered = new Set(filters.map(({ column }) => column));
    for (const [column, header] of this.worksheet.headers.entries()) header.classList.toggle("rs-filtered", filtered.has(column));
  }

  /** Scrolls a cell out from under what is frozen. */
  uncover(row: number, column: number): void {
    const { content, records, thead } = this.worksheet;
    const cell = records[row]?.[column]?.element;
    const frozenRows = this.window.frozenRows();
    if (!cell?.isConnected || (frozenRows.length === 0 && this.columns === 0)) return;
    // Its cells stay, the row itself scrolls away.
    const edge = frozenRows.at(-1)?.cells[0]?.getBoundingClientRect().bottom ?? thead.getBoundingClientRect().bottom;
    const { top, left } = cell.getBoundingClientRect();
    if (row >= frozenRows.length && top < edge) content.scrollTop -= edge - top;
    const last = this.worksheet.headers[this.columns - 1]?.getBoundingClientRect().right ?? 0;
    if (this.columns > 0 && column >= this.columns && left < last) content.scrollLeft -= last - left;
  }
}
