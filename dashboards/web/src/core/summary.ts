// What a selection holds, in a few numbers.

import type { Area } from "./address";
import type { Sheet } from "./sheet";

/** What is said of several cells. */
export interface Summary {
  /** Cells with something in them; an answer that is under way counts. */
  filled: number;
  numbers: number;
  /** Of the numbers. */
  sum: number;
  least: number;
  most: number;
}

/** Sums up an area, as far as the sheet is used and rows are seen. */
export function summarize(
  sheet: Pick<Sheet, "value" | "extent">, { row, column, rowEnd, columnEnd }: Area, isHidden: (row: number) => boolean = () => false,
): Summary {
  const used = sheet.extent();
  const summary = { filled: 0, numbers: 0, sum: 0, least: Infinity, most: -Infinity };
  for (let y = row; y <= Math.min(rowEnd, used.rows - 1); y += 1) {
    if (isHidden(y)) continue;
    for (let x = column; x <= Math.min(columnEnd, used.columns - 1); x += 1) {
      const value = sheet.value(y, x);
      if (value === null) continue;
      summary.filled += 1;
      if (typeof value !== "number") continue;
      summary.numbers += 1;
      summary.sum += value;
      summary.least = Math.min(summary.least, value);
      summary.most = Math.max(summary.most, value);
    }
  }
  return summary;
}
