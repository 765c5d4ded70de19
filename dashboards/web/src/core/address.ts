// Cell addresses: `B7` and the numbers behind it. Rows and columns count from 0 everywhere but on the screen.

import { cellName } from "relserve-client/a1";

export { cellName, columnName } from "relserve-client/a1";

/** A rectangle of cells, both ends included. */
export interface Area {
  row: number;
  column: number;
  rowEnd: number;
  columnEnd: number;
}

/** Most rows and columns of a sheet: what a browser still draws and a tab still holds. */
export const ROWS_MAX = 20_000;
export const COLUMNS_MAX = 100;

/** The column of a name without `$`; -1 for what is no name of one. */
export function columnOf(name: string): number {
  if (!/^[A-Za-z]{1,3}$/.test(name)) return -1;
  let column = 0;
  for (const letter of name.toUpperCase()) column = column * 26 + letter.charCodeAt(0) - 64;
  return column - 1;
}

/** A cell as one number, for maps and sets: three times as fast as a text, and it sorts by row. */
export type CellId = number;
const STRIDE = 1024;

/** The number of a cell. */
export function cellId(row: number, column: number): CellId {
  return row * STRIDE + column;
}

/** The row of a number. */
export function rowOf(id: CellId): number {
  return Math.floor(id / STRIDE);
}

/** The column of a number. */
export function columnOfId(id: CellId): number {
  return id % STRIDE;
}

/** The name of a number. */
export function nameOf(id: CellId): string {
  return cellName(rowOf(id), columnOfId(id));
}

/** Whether a cell lies in an area. */
export function contains(area: Area, row: number, column: number): boolean {
  return row >= area.row && row <= area.rowEnd && column >= area.column && column <= area.columnEnd;
}
