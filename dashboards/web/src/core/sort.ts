// Rows in the order of a column. Whole rows move, with what is typed in them; what refers to them stays.
//  - In a formula that moves, a relative reference to its own row moves along, as in Excel; any other stays.
//  - A formula whose answer spills over several rows stays where it is: its answers come again out of the sorted
//    rows that it reads, from the page's memory, and so follow them. What was typed over such an answer moves with
//    its row, also where that is the formula's own.

import { PENDING, type Scalar } from "relserve-client/value";

import { t } from "../text";
import { type Area, type CellId, cellId, columnName, columnOfId, contains, nameOf } from "./address";
import { type Step, Refusal, differences } from "./arrange";
import { compare } from "./order";
import { override, overridden } from "./override";
import { type Corner, rewrite } from "./references";
import type { Sheet } from "./sheet";

/** What is sorted: rows, both ends included, by a column. */
export interface Order {
  row: number;
  rowEnd: number;
  column: number;
  isDescending: boolean;
}

/** The new place of each row. Throws a `Refusal` where a row waits. */
export function placesOf(sheet: Sheet, { row, rowEnd, column, isDescending }: Order): Map<number, number> {
  const end = Math.min(rowEnd, sheet.extent().rows - 1);
  const keys = Array.from({ length: Math.max(0, end - row + 1) }, (_, i) => sheet.value(row + i, column));
  const waiting = keys.indexOf(PENDING);
  if (waiting >= 0) {
    const name = nameOf(cellId(row + waiting, column));
    throw new Refusal(t.failure.sortWaits(name, columnName(column)));
  }
  const order = keys.map((_, i) => i).sort((a, b) => compare(keys[a] as Scalar, keys[b] as Scalar, isDescending));
  return new Map(order.map((from, to) => [row + from, row + to]));
}

/** What sorting changes in what is typed, with the places of `placesOf`. Throws a `Refusal` where it would be by halves. */
export function sortRows(sheet: Sheet, order: Order, places = placesOf(sheet, order)): Step[] {
  const { row, rowEnd } = order;
  const staying = spillsIn(sheet, row, Math.min(rowEnd, sheet.extent().rows - 1));
  const [before, after, overrides] = [new Map<CellId, string>(), new Map<CellId, string>(), new Map<CellId, string>()];
  for (const typed of sheet.typed()) {
    const place = places.get(typed.row);
    if (place === undefined) continue;
    const id = cellId(typed.row, typed.column);
    before.set(id, typed.raw);
    const held = staying.has(id) ? overridden(typed.raw) : { raw: typed.raw, formula: undefined };
    if (staying.has(id)) after.set(id, held?.formula ?? typed.raw);
    else refuseMixed(sheet, id, place, staying);
    if (!held) continue;
    const to = cellId(place, typed.column);
    (staying.has(to) ? overrides : after).set(to, inRow(held.raw, typed.row, place));
  }
  for (const [id, raw] of overrides) after.set(id, override(after.get(id) ?? "", raw) ?? raw);
  return differences(before, after);
}

/** Formulas whose answers spill over several rows, some of them sorted. */
function spillsIn(sheet: Sheet, row: number, rowEnd: number): Map<CellId, Area> {
  const found = new Map<CellId, Area>();
  for (const typed of sheet.typed()) {
    const area = sheet.spillOf(typed.row, typed.column);
    if (!area || area.rowEnd === area.row || area.rowEnd < row || area.row > rowEnd) continue;
    found.set(cellId(typed.row, typed.column), area);
  }
  return found;
}

/** Text beside answers in one column cannot change places with them, but for what stands for one and goes on doing so. */
function refuseMixed(sheet: Sheet, id: CellId, place: number, staying: ReadonlyMap<CellId, Area>): void {
  for (const [owner, area] of staying) {
    if (!contains(area, area.row, columnOfId(id))) continue;
    if (sheet.overrides(id) === owner && contains(area, place, columnOfId(id))) continue;
    throw new Refusal(t.failure.sortMixed(nameOf(id), nameOf(owner), area.row + 1, area.rowEnd + 1));
  }
}

/** A formula that moves to another row. */
export function inRow(raw: string, from: number, to: number): string {
  if (from === to) return raw;
  const isOwn = (corner: Corner) => corner.row === from && !corner.isRowFixed;
  return rewrite(raw, (reference) => {
    const { start, end, sheet } = reference;
    if (sheet !== undefined || !isOwn(start) || (end && !isOwn(end))) return reference;
    return { start: { ...start, row: to }, end: end && { ...end, row: to } };
  });
}
