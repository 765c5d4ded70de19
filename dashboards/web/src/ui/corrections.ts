// Corrections of the step that was just made by hand: the grid copies formulas as they stand, and knows of no answers.

import type jspreadsheet from "jspreadsheet-ce";

import { cellId } from "../core/address";
import { overtyped } from "../core/override";
import { mended } from "../core/mended";
import type { Sheet } from "../core/sheet";
import { shift } from "../core/shift";
import { isFormula } from "../core/typed";
import { type TypedRecord, typedRecords } from "./history";
import type { Source } from "./selection";

type Worksheet = jspreadsheet.WorksheetInstance;

/** Writes another text into a cell of the step. */
function correct(worksheet: Worksheet, record: TypedRecord, raw: string): void {
  record.value = raw;
  ((worksheet.options.data as unknown[][])[Number(record.y)] as unknown[])[Number(record.x)] = raw;
}

/** A fill by the handle moves the references of the formulas that it copied out of its source. */
export function moveFormulas(worksheet: Worksheet, source: Source): void {
  const records = typedRecords(worksheet);
  if (!records) return;
  const top = records.reduce((least, { y }) => Math.min(least, Number(y)), Infinity);
  const left = records.reduce((least, { x }) => Math.min(least, Number(x)), Infinity);
  for (const record of records) {
    const [y, x] = [Number(record.y), Number(record.x)];
    const [dy, dx] = [(y - top) % source.rows, (x - left) % source.columns];
    if (!isFormula(String(record.value ?? ""))) continue;
    correct(worksheet, record, shift(String(record.value), y - source.row - dy, x - source.column - dx));
  }
}

/** A formula that was typed or pasted with round quotes gets straight ones, and one without its last brackets gets those. */
export function mendFormulas(worksheet: Worksheet): void {
  for (const record of typedRecords(worksheet) ?? []) {
    const raw = mended(String(record.value ?? ""));
    if (raw !== undefined) correct(worksheet, record, raw);
  }
}

/** What is typed over the first answer of an AI formula leaves the formula there. */
export function keepFormulas(worksheet: Worksheet, sheet: Sheet): void {
  const records = typedRecords(worksheet);
  if (!records) return;
  const all = new Map(records.map(({ x, y, value }) => [cellId(Number(y), Number(x)), String(value ?? "")]));
  for (const record of records) {
    const raw = overtyped(sheet, Number(record.y), Number(record.x), String(record.value ?? ""), all);
    if (raw !== undefined) correct(worksheet, record, raw);
  }
}
