// Where values come from that stand instead of answers: typed over them, or kept as values. For each such cell it is
// noted what had been asked, so that it can be said which of them have changed: what they would ask now is something
// else. The notes are a table that is never changed but replaced, so that a step of the history holds two of them.

import type { Call } from "relserve-client/calls";

import { type Area, type CellId, cellId, columnOfId, rowOf } from "./address";
import { type Edit, follow, moved } from "./arrange";
import { overridden } from "./override";
import { rewrite } from "./references";
import type { Change, Sheet } from "./sheet";
import { inRow } from "./sort";
import { isFormula } from "./typed";

/** What is known of one value. */
export interface Origin {
  /** The formula that would answer this cell alone; none where the formula still stands, and was typed over. */
  formula: string;
  /** What was asked, as `fingerprint` has it. */
  asked: string;
}

/** The cells of a sheet whose origin is known. */
export type Origins = ReadonlyMap<CellId, Origin>;

/** A sheet's origins at rest. */
export type StoredOrigins = [id: CellId, formula: string, asked: string][];

/** What stands for calls: equal for equal ones. */
export function fingerprint(calls: ReadonlyMap<string, Call>): string {
  return fingerprintOf([...calls.keys()].join("\n"));
}

/** What stands for a text, such as a call's key. */
export function fingerprintOf(text: string): string {
  // FNV-1a, twice from different beginnings: 64 bits are enough for cells of one sheet.
  let [a, b] = [0x811c9dc5, 0x01000193];
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 0x01000193);
    b = Math.imul(b ^ code, 0x5bd1e995);
  }
  return [a, b].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
}

/** A formula that fills an area, for one cell of it: ranges of the area's size become the cell at the same place. */
export function alone(raw: string, area: Area, row: number, column: number): string {
  const [rows, columns] = [area.rowEnd - area.row, area.columnEnd - area.column];
  if (rows === 0 && columns === 0) return raw;
  return rewrite(raw, (reference) => {
    const { start, end } = reference;
    if (!end || start.row === undefined || end.row === undefined) return reference;
    const isSame = end.row - start.row === rows && end.column - start.column === columns;
    if (!isSame) return reference;
    const place = { ...start, row: start.row + row - area.row, column: start.column + column - area.column };
    return { start: place, end: undefined };
  });
}

/** The origins once formulas have given way to values: those of which `kept` names a cell, with all that they fill. */
export function afterKeeping(sheet: Sheet, before: Origins, kept: Iterable<{ row: number; column: number }>): Origins {
  const after = new Map(before);
  const owners = new Set<CellId>();
  for (const { row, column } of kept) owners.add(sheet.spilledFrom(row, column) ?? cellId(row, column));
  for (const owner of owners) {
    const [row, column] = [rowOf(owner), columnOfId(owner)];
    const area = sheet.spillOf(row, column) ?? { row, column, rowEnd: row, columnEnd: column };
    const raw = sheet.raw(row, column);
    const formula = overridden(raw)?.formula ?? raw;
    for (const [id, asked] of sheet.callsIn(area)) {
      // What was typed over an answer stands there since then, not since now.
      const known = sheet.overrides(id) === undefined ? undefined : before.get(id)?.asked;
      after.set(id, { formula: alone(formula, area, rowOf(id), columnOfId(id)), asked: known ?? fingerprint(asked) });
    }
  }
  return after;
}

/** The origins once cells were typed into, some of them over answers. */
export function afterTyping(sheet: Sheet, before: Origins, changes: readonly Change[]): Origins {
  const over = changes.map(({ row, column }) => cellId(row, column)).filter((id) => sheet.overrides(id) !== undefined);
  if (over.length === 0) return before;
  const after = new Map(before);
  const calls = sheet.callsIn(around(over));
  for (const id of over) {
    const asked = calls.get(id);
    if (asked) after.set(id, { formula: "", asked: fingerprint(asked) });
  }
  return after;
}

/** The area that holds cells, one at least. */
function around(cells: readonly CellId[]): Area {
  return cells.reduce((area, id) => ({
    row: Math.min(area.row, rowOf(id)), rowEnd: Math.max(area.rowEnd, rowOf(id)),
    column: Math.min(area.column, columnOfId(id)), columnEnd: Math.max(area.columnEnd, columnOfId(id)),
  }), { row: Infinity, rowEnd: 0, column: Infinity, columnEnd: 0 });
}

/** The origins once rows or columns came or went. */
export function afterEdit(before: Origins, edit: Edit, name?: string): Origins {
  const after = new Map<CellId, Origin>();
  for (const [id, { formula, asked }] of before) {
    const [row, column] = [rowOf(id), columnOfId(id)];
    const [y, x] = edit.axis === "row" ? [moved(row, edit), column] : [row, moved(column, edit)];
    if (y !== undefined && x !== undefined) after.set(cellId(y, x), { formula: follow(formula, edit, [undefined, name]), asked });
  }
  return after;
}

/** The origins once formulas were written anew, since a sheet has another name or is gone. */
export function renamed(before: Origins, change: (raw: string) => string): Origins {
  return new Map([...before].map(([id, { formula, asked }]) => [id, { formula: change(formula), asked }]));
}

/** The origins once rows or columns of another sheet came or went; the same table where none of their formulas reads those. */
export function followed(before: Origins, edit: Edit, sheet: string): Origins {
  const after = renamed(before, (raw) => follow(raw, edit, [sheet]));
  return [...after].some(([id, { formula }]) => formula !== before.get(id)?.formula) ? after : before;
}

/** The origins once rows were sorted; `places` has the new place of each. */
export function afterSort(before: Origins, places: ReadonlyMap<number, number>): Origins {
  return new Map([...before].map(([id, { formula, asked }]) => {
    const [from, column] = [rowOf(id), columnOfId(id)];
    const to = places.get(from) ?? from;
    return [cellId(to, column), { formula: inRow(formula, from, to), asked }];
  }));
}

/** The cells whose value was edited or kept, and what would be asked for them now is not what had been asked then. */
export function changedCells(sheet: Sheet, origins: Origins, cells: Iterable<CellId> = origins.keys()): CellId[] {
  const known = [...cells].filter((id) => origins.has(id));
  const edited = known.filter((id) => origins.get(id)?.formula === "" && sheet.overrides(id) !== undefined);
  const now = edited.length > 0 ? sheet.callsIn(around(edited)) : new Map<CellId, Map<string, Call>>();
  for (const id of known) {
    const formula = origins.get(id)?.formula ?? "";
    const raw = sheet.raw(rowOf(id), columnOfId(id));
    // A value that gave way to something else, or to a formula again, has no origin any more.
    if (formula !== "" && raw !== "" && !isFormula(raw)) now.set(id, sheet.callsOf(formula, id));
  }
  return known.filter((id) => {
    const calls = now.get(id);
    return calls !== undefined && calls.size > 0 && fingerprint(calls) !== origins.get(id)?.asked;
  });
}

/** What has to be typed so that those that changed are asked again: what was typed over goes, kept values become formulas. */
export function askChanged(sheet: Sheet, origins: Origins): Change[] {
  return changedCells(sheet, origins).map((id) => {
    const [row, column] = [rowOf(id), columnOfId(id)];
    const formula = origins.get(id)?.formula ?? "";
    // In the formula's own cell it stands in front of the formula.
    return { row, column, raw: formula || (overridden(sheet.raw(row, column))?.formula ?? "") };
  });
}

/** Origins from rest. */
export function restored(stored: StoredOrigins | undefined): Origins {
  return new Map((stored ?? []).map(([id, formula, asked]) => [id, { formula, asked }]));
}

/** Origins to rest. */
export function stored(origins: Origins): StoredOrigins {
  return [...origins].map(([id, { formula, asked }]) => [id, formula, asked]);
}
