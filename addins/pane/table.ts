// The open sheet as a table for the wizard.

import { type Cells, type Table, tableOf } from "relserve-client/column";
import type { Scalar } from "relserve-client/value";

import type { SheetCells } from "./host";

/** A table with the sheet that it is of. Rows and columns count from the sheet's own first cell. */
export interface OpenTable {
  cells: SheetCells;
  table: Table;
  value: Cells["value"];
}

/** The table of a sheet; nothing where it has no rows. */
export function openTable(cells: SheetCells): OpenTable | undefined {
  const { row: top, column: left, values } = cells;
  const width = values[0]?.length ?? 0;
  const within = (row: number, column: number): Scalar => values[row]?.[column] ?? null;
  const found = tableOf({ value: within, extent: () => ({ rows: values.length, columns: width }) }, left);
  if (!found) return undefined;
  const table: Table = {
    headers: found.headers.map(({ name, column }) => ({ name, column: column + left })),
    first: found.first + top, last: found.last + top, free: found.free + left,
  };
  return { cells, table, value: (row, column) => within(row - top, column - left) };
}
