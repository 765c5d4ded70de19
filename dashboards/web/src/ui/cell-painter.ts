// What a cell of the grid looks like: its text as it fits the column, what it is by colour, and what is said of it.

import { CellError, PENDING, type Scalar } from "relserve-client/value";

import { type CellId, cellId } from "../core/address";
import { fitted } from "../core/fit";
import type { Sheet } from "../core/sheet";
import { t } from "../text";

/** A text of more characters is told whole by its tooltip. */
const SHORT = 18;

/** Whether a text is a date that a format shows in its own way. */
function isTypedDate(value: Scalar, text: string, isFormatted: boolean): boolean {
  return typeof value === "string" && isFormatted && text !== value;
}

/** Paints cells of one grid. */
export class CellPainter {
  private readonly pen = document.createElement("canvas").getContext("2d");
  /** Pixels of the font's height: no letter is wider. */
  private readonly height: number;
  /** Pixels of a cell that are not its text's: padding and lines. */
  private readonly beside: number;

  /** Measures by a cell of the grid. */
  constructor(cell: HTMLElement) {
    const style = getComputedStyle(cell);
    if (this.pen) this.pen.font = style.font;
    this.height = Number.parseFloat(style.fontSize);
    const sides = [style.paddingLeft, style.paddingRight, style.borderLeftWidth, style.borderRightWidth];
    this.beside = sides.reduce((sum, side) => sum + (Number.parseFloat(side) || 0), 0);
  }

  /** A value's text as a column of so many pixels has room for it; texts flow over, or are cut where that is seen. */
  private fitting(value: Scalar, text: string, isFormatted: boolean, width: number): string {
    const isDate = isTypedDate(value, text, isFormatted);
    if (typeof value !== "number" && !isDate) return text;
    const room = width - this.beside;
    const fits = (one: string) => one.length * this.height <= room || (this.pen?.measureText(one).width ?? 0) <= room;
    return fitted(text, Number(value), isFormatted || isDate, fits);
  }

  /** Lays a text into a cell of a column that is so many pixels wide. */
  paint(
    cell: HTMLTableCellElement, sheet: Sheet, [row, column]: readonly [number, number],
    text: string, isFormatted: boolean, width: number,
  ): void {
    const value = sheet.value(row, column);
    const seen = this.fitting(value, text, isFormatted, width);
    const id: CellId = cellId(row, column);
    if (cell.textContent !== seen) cell.textContent = seen;
    const owner = sheet.spilledFrom(row, column);
    const set = (name: string, on: boolean) => cell.classList.toggle(name, on);
    set("rs-ai", value !== null && sheet.isAi(row, column));
    set("rs-pending", value === PENDING);
    set("rs-error", value instanceof CellError);
    set("rs-stopped", value instanceof CellError && value.code === "#STOPPED!");
    const overrides = sheet.overrides(id) !== undefined;
    set("rs-spilled", owner !== undefined);
    set("rs-edited", overrides);
    set("rs-number", typeof value === "number" || isTypedDate(value, text, isFormatted));
    const note = value instanceof CellError ? value.note : overrides ? t.grid.editedNote : text.length > SHORT || seen !== text ? text : "";
    if (note) cell.title = note;
    else cell.removeAttribute("title");
    if (value instanceof CellError) cell.setAttribute("aria-label", `${value.code} ${value.note}`);
    else if (value === PENDING) cell.setAttribute("aria-label", t.grid.waitingLabel);
    else if (overrides) cell.setAttribute("aria-label", t.grid.editedLabel(text));
    else if (seen !== text) cell.setAttribute("aria-label", text);
    else cell.removeAttribute("aria-label");
  }
}
