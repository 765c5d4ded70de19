// What a cell of the grid looks like: its text as it fits the column, what it is by colour, and what is said of it.

import { CellError, PENDING, type Scalar } from "relserve-client/value";

import { type CellId, cellId } from "../core/address";
import { serialOf } from "../core/dates";
import { fitted } from "../core/fit";
import { isDate } from "../core/number-format";
import type { Sheet } from "../core/sheet";
import { t } from "../text";

/** A text of more characters is told whole by its tooltip. */
const SHORT = 18;

/** Whether a text is a date that a format of dates shows as one. */
function isTypedDate(value: Scalar, code: string | undefined): boolean {
  return typeof value === "string" && code !== undefined && isDate(code) && serialOf(value) !== undefined;
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
  private fitting(value: Scalar, text: string, code: string | undefined, width: number): string {
    const isTyped = isTypedDate(value, code);
    if (typeof value !== "number" && !isTyped) return text;
    const room = width - this.beside;
    const fits = (one: string) => one.length * this.height <= room || (this.pen?.measureText(one).width ?? 0) <= room;
    return fitted(text, Number(value), code !== undefined, fits);
  }

  /** Lays a text into a cell of a column that is so many pixels wide. */
  paint(
    cell: HTMLTableCellElement, sheet: Sheet, [row, column]: readonly [number, number],
    text: string, code: string | undefined, width: number,
  ): void {
    const value = sheet.value(row, column);
    const seen = this.fitting(value, text, code, width);
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
    set("rs-number", typeof value === "number" || isTypedDate(value, code));
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
