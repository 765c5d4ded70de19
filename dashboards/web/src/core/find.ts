// What is looked for in a sheet: texts as they are seen, without case.

import { type CellId, cellId } from "./address";
import { textAt } from "./filter";
import type { Layout } from "./layout";
import type { Sheet } from "./sheet";

/** Most cells that are found. */
export const FOUND_MAX = 10_000;

/** The cells that have some words in them, row by row, without hidden rows. */
export function find(
  sheet: Pick<Sheet, "value" | "extent" | "usualFormat">, layout: Layout, words: string, isHidden: (row: number) => boolean,
): CellId[] {
  const sought = words.toLowerCase();
  const found: CellId[] = [];
  if (sought === "") return found;
  const { rows, columns } = sheet.extent();
  for (let row = 0; row < rows; row += 1) {
    if (isHidden(row)) continue;
    for (let column = 0; column < columns; column += 1) {
      if (!textAt(sheet, layout, row, column).toLowerCase().includes(sought)) continue;
      found.push(cellId(row, column));
      if (found.length === FOUND_MAX) return found;
    }
  }
  return found;
}
