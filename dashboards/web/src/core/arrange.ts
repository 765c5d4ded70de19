// Rows and columns that come and go, as a list of what changes in which cell. Everything that is typed behind
// them moves, and every reference with it, relative or fixed: a range that a row is put into grows, a reference
// to a deleted cell is `#REF!`. What spills is not typed: it moves because its formula does.

import { t } from "../text";
import { COLUMNS_MAX, type CellId, ROWS_MAX, cellId, columnName, columnOfId, nameOf, rowOf } from "./address";
import { type Corner, type Reference, isSameSheet, rewrite } from "./references";
import type { Change } from "./sheet";

/** Rows or columns that come or go. */
export interface Edit {
  kind: "insert" | "delete";
  axis: "row" | "column";
  /** The first that is new or goes. */
  at: number;
  count: number;
}

/** What one cell held and holds: enough to do a step, to undo it and to do it again. */
export interface Step {
  row: number;
  column: number;
  before: string;
  after: string;
}

/** Something that cannot be done to the sheet, in words for people. */
export class Refusal extends Error {}

/** How many rows or columns a sheet has at most. */
const most = { row: ROWS_MAX, column: COLUMNS_MAX };

/** Where a row or column is after an edit; none where it is gone. */
export function moved(position: number, { kind, at, count }: Edit): number | undefined {
  if (position < at) return position;
  if (kind === "insert") return position + count;
  return position < at + count ? undefined : position - count;
}

/** A formula after an edit of the sheets that references name so; no name is its own sheet. */
export function follow(raw: string, edit: Edit, sheets: readonly (string | undefined)[] = [undefined]): string {
  return rewrite(raw, (reference) =>
    sheets.some((sheet) => isSameSheet(reference.sheet, sheet)) ? along(reference, edit) : reference);
}

function along(reference: Reference, edit: Edit): Reference | undefined {
  const { start, end } = reference;
  const { axis } = edit;
  const [from, to] = [start[axis], end?.[axis]];
  // `A:B` has no rows that could move.
  if (from === undefined) return reference;
  if (to === undefined) {
    const place = moved(from, edit);
    return place === from ? reference : place === undefined ? undefined : { ...reference, start: at(start, axis, place) };
  }
  const span = spanAfter(Math.min(from, to), Math.max(from, to), edit);
  if (!span) return undefined;
  const [low, high] = span;
  const [first, last] = from <= to ? [low, high] : [high, low];
  if (first === from && last === to) return reference;
  return { ...reference, start: at(start, axis, first), end: at(end as Corner, axis, last) };
}

/** Both ends of a range after an edit; an end that is deleted gives way to its neighbour inside. */
export function spanAfter(low: number, high: number, edit: Edit): [number, number] | undefined {
  const last = most[edit.axis] - 1;
  const after = edit.at + edit.count;
  if (edit.kind === "delete" && low >= edit.at && high < after) return undefined;
  const first = moved(low, edit) ?? edit.at;
  // A range down to the end of the sheet keeps ending there, as `A:A` does.
  const end = high === last ? last : Math.min(last, moved(high, edit) ?? edit.at - 1);
  return first > last ? undefined : [first, end];
}

function at(corner: Corner, axis: Edit["axis"], place: number): Corner {
  return { ...corner, [axis]: place };
}

/** What an edit changes in what is typed. Throws a `Refusal` if something would fall off the sheet. */
export function rearrange(typed: Iterable<Change>, edit: Edit, name?: string): Step[] {
  const [before, after] = [new Map<CellId, string>(), new Map<CellId, string>()];
  for (const { row, column, raw } of typed) {
    before.set(cellId(row, column), raw);
    const [y, x] = edit.axis === "row" ? [moved(row, edit), column] : [row, moved(column, edit)];
    if (y === undefined || x === undefined) continue;
    if (y >= ROWS_MAX || x >= COLUMNS_MAX) {
      const cell = nameOf(cellId(row, column));
      throw new Refusal(edit.axis === "row" ? t.failure.rowsEnd(ROWS_MAX, cell) : t.failure.columnsEnd(columnName(COLUMNS_MAX - 1), cell));
    }
    after.set(cellId(y, x), follow(raw, edit, [undefined, name]));
  }
  return differences(before, after);
}

/** What an edit of another sheet, which has a name, changes in formulas that read it. */
export function followElsewhere(typed: Iterable<Change>, edit: Edit, sheet: string): Step[] {
  const steps: Step[] = [];
  for (const { row, column, raw } of typed) {
    const after = follow(raw, edit, [sheet]);
    if (after !== raw) steps.push({ row, column, before: raw, after });
  }
  return steps;
}

/** What is different between two states of what is typed. */
export function differences(before: ReadonlyMap<CellId, string>, after: ReadonlyMap<CellId, string>): Step[] {
  const steps: Step[] = [];
  const compare = (id: CellId) => {
    const [was, is] = [before.get(id) ?? "", after.get(id) ?? ""];
    if (was !== is) steps.push({ row: rowOf(id), column: columnOfId(id), before: was, after: is });
  };
  for (const id of before.keys()) compare(id);
  for (const id of after.keys()) if (!before.has(id)) compare(id);
  return steps;
}

/** The widths of columns after an edit, as many as before; new ones get a width that nobody has set. */
export function widthsAfter(widths: readonly number[], edit: Edit, usual: number): number[] {
  const out = [...widths];
  if (edit.axis === "row") return out;
  if (edit.kind === "insert") out.splice(edit.at, 0, ...Array.from({ length: edit.count }, () => usual));
  else out.splice(edit.at, edit.count);
  return Array.from(widths, (_, column) => out[column] ?? usual);
}
