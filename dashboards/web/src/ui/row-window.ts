// The rows that are in the page: a hundred around those that are seen. The grid alone lets its scrollbar stand for
// these hundred and brings the next thirty at each end, ten times a second: 5,000 rows were a quarter of a minute
// away. Here the rest has its height too, so that a place of the scrollbar is a place in the sheet.

import type jspreadsheet from "jspreadsheet-ce";

type Worksheet = jspreadsheet.WorksheetInstance;

/** As many as the grid keeps itself when keys move it on. */
const LEAST = 100;
/** Rows beside those that are seen. */
const MARGIN = 20;
/** New rows come when fewer than these are left. */
const SPARE = 5;

/** The rows of a worksheet that are in the page. */
export class RowWindow {
  private readonly above = document.createElement("div");
  private readonly below = document.createElement("div");

  constructor(private readonly worksheet: Worksheet) {
    const { content, table, tbody } = worksheet;
    content.insertBefore(this.above, table);
    table.after(this.below);
    content.style.setProperty("overflow-anchor", "none");
    content.addEventListener("scroll", () => this.cover());
    new MutationObserver(() => this.refresh()).observe(tbody, { childList: true });
    // The grid calls it, and has none.
    Object.assign(worksheet, { loadPage: (hundred: number) => this.show(hundred * LEAST) });
    this.place();
  }

  /** Looks again, after rows or sizes have changed. */
  refresh(): void {
    this.place();
    this.cover();
  }

  /** Gives the rows that are not in the page their height. */
  place(): void {
    const height = this.rowHeight();
    // Behind the live view nothing has a height.
    if (height === 0) return;
    const [first, last] = this.bounds();
    const total = this.worksheet.rows.length;
    const set = (element: HTMLElement, rows: number) => {
      const style = `${rows * height}px`;
      if (element.style.height !== style) element.style.height = style;
    };
    set(this.above, first);
    set(this.below, total - 1 - last);
  }

  /** Scrolls to a row that is not in the page. */
  reveal(row: number): void {
    const { content, rows } = this.worksheet;
    if (!rows[row] || rows[row].element.isConnected) return;
    content.scrollTop = Math.max(0, row * this.rowHeight() - content.clientHeight / 2);
    this.cover();
  }

  /** Puts the rows into the page that are seen, where some of them are not. */
  private cover(): void {
    const height = this.rowHeight();
    if (height === 0) return;
    const { content, rows } = this.worksheet;
    const seen = Math.ceil(content.clientHeight / height);
    const top = Math.floor(content.scrollTop / height);
    const [first, last] = this.bounds();
    const isCovered = (first === 0 || top - first >= SPARE) && (last === rows.length - 1 || last - top - seen >= SPARE);
    if (!isCovered) this.show(top - Math.max(MARGIN, (LEAST - seen) >> 1), seen + 2 * MARGIN);
  }

  private show(from: number, least = LEAST): void {
    const { rows, tbody } = this.worksheet;
    const count = Math.max(LEAST, least);
    const first = Math.max(0, Math.min(from, rows.length - count));
    tbody.replaceChildren(...rows.slice(first, first + count).map(({ element }) => element));
    this.place();
  }

  private rowHeight(): number {
    const { tbody } = this.worksheet;
    return tbody.getBoundingClientRect().height / Math.max(1, tbody.children.length);
  }

  /** The first and the last row in the page. */
  private bounds(): [first: number, last: number] {
    const { firstElementChild: first, lastElementChild: last } = this.worksheet.tbody;
    return [Number(first?.getAttribute("data-y") ?? 0), Number(last?.getAttribute("data-y") ?? 0)];
  }
}
