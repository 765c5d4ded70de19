// The column of a table that is most likely asked about: the one with the longest texts. Names, dates and numbers stand in
// others, mostly before it.

import type { Table } from "relserve-client/column";
import { type Scalar, shown } from "relserve-client/value";

/** Rows that are looked at. */
const ROWS = 20;

/** The column with the longest texts; the first one where there are none. */
export function textColumn({ headers, first, last }: Table, value: (row: number, column: number) => Scalar): number | undefined {
  const rows = Array.from({ length: Math.min(ROWS, last - first + 1) }, (_, i) => first + i);
  const lengthOf = (column: number) => rows.reduce((sum, row) => {
    const one = value(row, column);
    return sum + (typeof one === "string" ? shown(one).length : 0);
  }, 0);
  const columns = headers.map(({ column }) => ({ column, length: lengthOf(column) }));
  return columns.reduce((best, one) => (one.length > best.length ? one : best), columns[0] ?? { column: undefined, length: 0 }).column;
}
