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
  /** Rows that stay above the others. */
  private readonly frozen = document.createElement("tbody");
  /** The rows that scroll, where those are not all, and the place of each. */
  private order: number[] | undefined;
  private places = new Map<number, number>();
  /** The height of a row when one was last there. */
  private height = 0;

  /** `came`: rows are in the page that were not, before it is drawn. */
  constructor(private readonly worksheet: Worksheet, private readonly came: (rows: Iterable<number>) => void) {
    const { content, table, tbody } = worksheet;
    content.insertBefore(this.above, table);
    table.after(this.below);
    this.frozen.classList.add("rs-frozen");
    content.style.setProperty("overflow-anchor", "none");
    content.addEventListener("scroll", () => this.cover());
    new MutationObserver((changes) => {
      this.came(changes.flatMap(({ addedNodes }) => [...addedNodes].map((row) => Number((row as HTMLElement).dataset["y"]))));
      this.refresh();
    }).observe(tbody, { childList: true });
    // The grid calls it, and has none.
    Object.assign(worksheet, { loadPage: (hundred: number) => this.show(this.placeFrom(hundred * LEAST)) });
    this.place();
  }

  /** Says which rows are hidden, and how many of the first ones stay above the others. */
  arrange(hidden: ReadonlySet<number>, frozenRows: number): void {
    const { rows, table, tbody } = this.worksheet;
    if (!this.order && hidden.size === 0 && frozenRows === 0) return this.place();
    const first = this.bounds()[0];
    // The grid's keys, fills and copies pass over rows that are not displayed.
    for (const [row, { element }] of rows.entries()) element.style.display = hidden.has(row) ? "none" : "";
    const isWhole = hidden.size === 0 && frozenRows === 0;
    this.order = isWhole ? undefined : [...rows.keys()].filter((row) => row >= frozenRows && !hidden.has(row));
    this.places = new Map(this.order?.map((row, place) => [row, place]));
    // Its own paging goes by these, as after a search.
    Object.assign(this.worksheet, { results: this.order ?? null });
    this.worksheet.options.filters = this.order !== undefined;
    this.frozen.replaceChildren(...rows.slice(0, frozenRows).map(({ element }) => element));
    if (frozenRows > 0) table.insertBefore(this.frozen, tbody);
    else this.frozen.remove();
    this.came(Array.from({ length: frozenRows }, (_, row) => row));
    this.show(first);
    this.cover();
  }

  /** The rows that stay above the others, where there are any. */
  frozenRows(): HTMLTableRowElement[] {
    return Array.from(this.frozen.rows);
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
    const set = (element: HTMLElement, rows: number) => {
      const style = `${rows * height}px`;
      if (element.style.height !== style) element.style.height = style;
    };
    set(this.above, first);
    set(this.below, this.total - 1 - last);
  }

  /** Scrolls to a row that is not in the page. */
  reveal(row: number): void {
    const { content, rows } = this.worksheet;
    if (!rows[row] || rows[row].element.isConnected) return;
    content.scrollTop = Math.max(0, this.placeFrom(row) * this.rowHeight() - content.clientHeight / 2);
    this.cover();
  }

  /** Puts the rows into the page that are seen, where some of them are not. */
  private cover(): void {
    const height = this.rowHeight();
    if (height === 0) return;
    const { content } = this.worksheet;
    const seen = Math.ceil(content.clientHeight / height);
    const top = Math.floor(content.scrollTop / height);
    const [first, last] = this.bounds();
    const isCovered = (first === 0 || top - first >= SPARE) && (last === this.total - 1 || last - top - seen >= SPARE);
    if (!isCovered) this.show(top - Math.max(MARGIN, (LEAST - seen) >> 1), seen + 2 * MARGIN);
  }

  private show(from: number, least = LEAST): void {
    const { rows } = this.worksheet;
    const count = Math.max(LEAST, least);
    const first = Math.max(0, Math.min(from, this.total - count));
    const shown = this.order?.slice(first, first + count) ?? Array.from({ length: Math.min(count, rows.length - first) }, (_, place) => first + place);
    this.put(shown.flatMap((row) => rows[row]?.element ?? []));
    // Before their height is measured, so that they are laid out once.
    this.came(shown);
    this.place();
  }

  /** Puts rows into the page, in their order. Those that are there stay: only what is new is laid out anew. */
  private put(shown: readonly HTMLTableRowElement[]): void {
    const { tbody } = this.worksheet;
    const stays = new Set<Element>(shown);
    for (const row of [...tbody.children]) if (!stays.has(row)) row.remove();
    let next = tbody.firstElementChild;
    for (const row of shown) {
      if (row === next) next = next.nextElementSibling;
      else tbody.insertBefore(row, next);
    }
  }

  /** How many rows scroll. */
  private get total(): number {
    return this.order?.length ?? this.worksheet.rows.length;
  }

  /** The place of a row, or of the next one that scrolls. */
  private placeFrom(row: number): number {
    if (!this.order) return row;
    const place = this.order.findIndex((other) => other >= row);
    return place < 0 ? this.order.length : place;
  }

  private rowHeight(): number {
    const { tbody } = this.worksheet;
    const height = tbody.getBoundingClientRect().height / Math.max(1, tbody.children.length);
    if (height > 0) this.height = height;
    // Where all rows are hidden there is none to measure.
    return this.total === 0 ? this.height : height;
  }

  /** The places of the first and the last row in the page. */
  private bounds(): [first: number, last: number] {
    const { firstElementChild: first, lastElementChild: last } = this.worksheet.tbody;
    if (!first || !last) return [0, -1];
    const [from, to] = [Number(first.getAttribute("data-y") ?? 0), Number(last.getAttribute("data-y") ?? 0)];
    return this.order ? [this.places.get(from) ?? 0, this.places.get(to) ?? -1] : [from, to];
  }
}
