// Sum, average and count of the selected cells, as every spreadsheet shows them below.

import { shown } from "relserve-client/value";

import type { Sheet } from "../core/sheet";
import { summarize } from "../core/summary";
import { t } from "../text";
import { element } from "./dom";
import type { Source } from "./grid";

/** More cells are not gone through while somebody draws a selection over them. */
const CELLS_MAX = 50_000;

/** The line. */
export class SelectionSummary {
  private readonly line = element("selection", HTMLOutputElement);

  /** Shows what an area holds, without the rows that a filter hides; nothing for one cell. */
  show(sheet: Sheet | undefined, { row, column, rows, columns }: Source, isHidden: (row: number) => boolean): void {
    const words = sheet && rows * columns > 1 ? wordsFor(sheet, { row, column, rows, columns }, isHidden) : "";
    if (this.line.value !== words) this.line.value = words;
  }
}

function wordsFor(sheet: Sheet, { row, column, rows, columns }: Source, isHidden: (row: number) => boolean): string {
  const used = sheet.extent();
  const cells = Math.min(rows, Math.max(0, used.rows - row)) * Math.min(columns, Math.max(0, used.columns - column));
  if (cells > CELLS_MAX) return t.selection.tooMany(CELLS_MAX);
  const { filled, numbers, sum, least, most } =
    summarize(sheet, { row, column, rowEnd: row + rows - 1, columnEnd: column + columns - 1 }, isHidden);
  if (numbers === 0) return filled > 0 ? t.selection.count(filled) : "";
  return t.selection.all(rounded(sum), rounded(sum / numbers), rounded(least), rounded(most), filled);
}

/** A number as the line has room for it: two decimals, or seven digits of a small one. */
function rounded(number: number): string {
  return shown(Number(Math.abs(number) < 100_000 ? number.toPrecision(7) : number.toFixed(2)));
}
