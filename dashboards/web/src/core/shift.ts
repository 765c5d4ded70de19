// Formulas that are copied: `=A1+$B$1` one row down is `=A2+$B$1`.

import { type Corner, rewrite } from "./references";

/** The formula as it reads some rows and columns further on; what leaves the sheet is `#REF!`. */
export function shift(raw: string, rows: number, columns: number): string {
  const moved = (corner: Corner): Corner => ({
    ...corner,
    column: corner.column + (corner.isColumnFixed ? 0 : columns),
    row: corner.row === undefined ? undefined : corner.row + (corner.isRowFixed ? 0 : rows),
  });
  return rewrite(raw, (reference) => ({ ...reference, start: moved(reference.start), end: reference.end && moved(reference.end) }));
}
