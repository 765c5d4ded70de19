// Formulas that move: `=A1+$B$1` one row down is `=A2+$B$1`. Works on the text, so that what somebody wrote
// stays as they wrote it; texts in quotes and function names are left alone.

import { COLUMNS_MAX, ROWS_MAX, columnName, columnOf } from "./address";

const PIECE = /"(?:[^"]|"")*"|[A-Za-z_][A-Za-z0-9_.]*\(|(\$?)([A-Za-z]{1,3})(\$?)([1-9]\d*)(?![A-Za-z0-9_(])|[A-Za-z0-9_.]+/g;

/** The formula as it reads some rows and columns further on; what leaves the sheet is `#REF!`. */
export function shift(raw: string, rows: number, columns: number): string {
  if (!raw.startsWith("=")) return raw;
  return raw.replace(PIECE, (whole, columnFixed?: string, letters?: string, rowFixed?: string, digits?: string) => {
    if (letters === undefined || digits === undefined || columnOf(letters) >= COLUMNS_MAX) return whole;
    const column = columnOf(letters) + (columnFixed ? 0 : columns);
    const row = Number(digits) - 1 + (rowFixed ? 0 : rows);
    if (column < 0 || row < 0 || column >= COLUMNS_MAX || row >= ROWS_MAX) return "#REF!";
    return `${columnFixed ?? ""}${columnName(column)}${rowFixed ?? ""}${row + 1}`;
  });
}
