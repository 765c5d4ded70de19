// Looking for words in the open sheet: the browser's own search sees only the rows that are in the page.

import { type CellId, columnOfId, rowOf } from "../core/address";
import { FOUND_MAX, find } from "../core/find";
import type { Sheet } from "../core/sheet";
import { t } from "../text";
import { element, onClick } from "./dom";
import type { Grid } from "./grid";

/** The bar. */
export class FindBar {
  private readonly bar = element("find", HTMLFormElement);
  private readonly input = element("find-words", HTMLInputElement);
  private readonly told = element("find-count", HTMLOutputElement);

  constructor(private readonly grid: Grid, private readonly sheet: () => Sheet | undefined) {
    this.input.addEventListener("input", () => this.step(0));
    this.bar.addEventListener("submit", (event) => {
      event.preventDefault();
      this.step(1);
    });
    onClick("find-previous", () => this.step(-1));
    onClick("find-close", () => this.close());
    this.bar.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
      else if (event.key === "Enter" && event.shiftKey) this.step(-1);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** Opens it. */
  open(): void {
    this.grid.finishEdit();
    this.bar.hidden = false;
    this.input.focus();
    this.input.select();
  }

  private close(): void {
    this.bar.hidden = true;
    this.told.value = "";
    this.grid.focus();
  }

  /** Selects the next match, or the one before, or with 0 the first from the selected cell on. */
  private step(by: -1 | 0 | 1): void {
    const sheet = this.sheet();
    const found = sheet ? find(sheet, this.grid.layout, this.input.value, (row) => this.grid.isHidden(row)) : [];
    const { row, column } = this.grid.selection();
    const isBefore = (id: CellId) => rowOf(id) < row || (rowOf(id) === row && columnOfId(id) < column);
    const next = found.findIndex((id) => !isBefore(id));
    const here = next >= 0 ? next : 0;
    const isOnOne = found[here] !== undefined && rowOf(found[here]) === row && columnOfId(found[here]) === column;
    const at = by === 0 || (by === 1 && !isOnOne) ? here : (here + by + found.length) % Math.max(1, found.length);
    const cell = found[at];
    const place = found.length === FOUND_MAX ? t.find.placeOfMore(at + 1, FOUND_MAX) : t.find.place(at + 1, found.length);
    this.told.value = this.input.value === "" ? "" : cell === undefined ? t.find.none : place;
    if (cell !== undefined) this.grid.reach(rowOf(cell), columnOfId(cell));
  }
}
