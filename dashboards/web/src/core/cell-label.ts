// What a cell's calls are for, as the live view names them.

import type { Label } from "relserve-client/labels";

import { type CellId, columnName, columnOfId, rowOf } from "./address";

/** What is read of a sheet. */
interface Typed {
  raw(row: number, column: number): string;
}

/** The label of a cell: its column by letter and by the title in the first row, and its formula. */
export function cellLabel(workbook: string, sheet: Typed, cell: CellId): Label {
  const [row, column] = [rowOf(cell), columnOfId(cell)];
  const title = row > 0 ? sheet.raw(0, column).trim() : "";
  const letter = columnName(column);
  return {
    workbook,
    column: title !== "" && !title.startsWith("=") ? `${letter} ${title}` : letter,
    formula: sheet.raw(row, column),
  };
}
