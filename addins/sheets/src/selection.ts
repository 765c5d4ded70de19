// What a selection of cells becomes where its answers are kept, or asked again. Pure: the menu reads and writes
// the sheet.

import { isAi, shapeOf, withKept, withoutKept } from "../../shared/formula";
import { PENDING_MARK } from "./ask";

/** A cell as `Range` gives it. */
export type Cell = string | number | boolean | Date;

/** A selection. */
export interface Selection {
  formulas: string[][];
  values: Cell[][];
}

/** Cells to write, each a formula or a value, and what was left as it is. */
export interface Edits {
  cells: { row: number; column: number; write: Cell }[];
  left: { row: number; column: number; reason: string }[];
}

/** What a cell shows while it has no answer. */
function isUnfinished(value: Cell): boolean {
  return typeof value === "string" && (value.startsWith(PENDING_MARK) || /^(#(N\/A|VALUE!|ERROR!|REF!|NAME\?)|Loading\.\.\.)/.test(value));
}

/** A text that stays a text: without this an answer such as `=IMPORTDATA(...)` or `1/2` would be typed, not shown. */
export function asText(value: Cell): Cell {
  return typeof value === "string" && value !== "" ? `'${value}` : value;
}

/**
 * The cells that the AI formula at this place fills: what it says itself, else down to the last cell that stands there
 * without a formula. `undefined`: they go beyond the selection.
 */
function areaOf({ formulas, values }: Selection, row: number, column: number): { rows: number; columns: number } | undefined {
  const shape = shapeOf(formulas[row]?.[column] ?? "", "_");
  if (shape.rows !== undefined) {
    const fits = row + shape.rows <= formulas.length && column + shape.columns <= (formulas[row]?.length ?? 0);
    return fits ? { rows: shape.rows, columns: shape.columns } : undefined;
  }
  // A blank row within the answer belongs to it where something follows: blank cells ask nothing and stay blank.
  let rows = 1;
  for (let y = row + 1; y < formulas.length && formulas[y]?.[column] === ""; y += 1) {
    if (values[y]?.[column] !== "") rows = y - row + 1;
  }
  return { rows, columns: 1 };
}

/** Replaces the selected AI formulas, and what they fill within the selection, by their values. */
export function asValues(selection: Selection): Edits {
  return over(selection, (row, column, cells) =>
    cells.map(({ y, x, value }) => ({ row: row + y, column: column + x, write: asText(value) })),
  );
}

/** Puts each answer into its formula, as the last argument. */
export function inFormulas(selection: Selection): Edits {
  return over(selection, (row, column, cells) => {
    const values: (string | number | boolean | null)[][] = [];
    for (const { y, value } of cells) (values[y] ??= []).push(value instanceof Date ? String(value) : value);
    const kept = withKept(selection.formulas[row]?.[column] ?? "", values, "_");
    return "reason" in kept ? kept.reason : [{ row, column, write: kept.formula }];
  });
}

/** The formulas to enter again: all AI formulas of the selection, without a kept answer. */
export function again({ formulas }: Selection): Edits {
  const edits: Edits = { cells: [], left: [] };
  formulas.forEach((line, row) =>
    line.forEach((formula, column) => {
      if (isAi(formula, "_")) edits.cells.push({ row, column, write: withoutKept(formula, "_") ?? formula });
    }),
  );
  return edits;
}

/** The formulas to enter again because they, or a cell beside or under them, wait or failed. */
export function unfinished(selection: Selection): Edits {
  const { formulas, values } = selection;
  const { cells } = again(selection);
  const waits = (row: number, column: number) => {
    const { rows, columns } = areaOf(selection, row, column) ?? { rows: values.length, columns: values[0]?.length ?? 0 };
    return values.slice(row, row + rows).some((line) => line.slice(column, column + columns).some(isUnfinished));
  };
  const due = cells.filter(({ row, column }) => waits(row, column));
  return { cells: due.map((edit) => ({ ...edit, write: formulas[edit.row]?.[edit.column] ?? "" })), left: [] };
}

type Found = { y: number; x: number; value: Cell }[];

function over(
  selection: Selection, edit: (row: number, column: number, cells: Found) => Edits["cells"] | string,
): Edits {
  const edits: Edits = { cells: [], left: [] };
  selection.formulas.forEach((line, row) =>
    line.forEach((formula, column) => {
      if (!isAi(formula, "_")) return;
      const area = areaOf(selection, row, column);
      if (!area) {
        edits.left.push({ row, column, reason: "select all cells of its answer" });
        return;
      }
      const { rows, columns } = area;
      const cells: Found = [];
      for (let y = 0; y < rows; y += 1) {
        for (let x = 0; x < columns; x += 1) cells.push({ y, x, value: selection.values[row + y]?.[column + x] ?? "" });
      }
      const made = cells.some(({ value }) => isUnfinished(value)) ? "its answer is not there" : edit(row, column, cells);
      if (typeof made === "string") edits.left.push({ row, column, reason: made });
      else edits.cells.push(...made);
    }),
  );
  return edits;
}
