// The open sheet as a file, and a file as rows to open.

import { CellError, PENDING, shown } from "relserve-client/value";

import type { Member } from "../core/book";
import { COLUMNS_MAX, ROWS_MAX, cellId, cellName } from "../core/address";
import { harmless, readCsv, writeCsv } from "../core/csv";
import { serialOf } from "../core/dates";
import { decode } from "../core/decode";
import { type Layout, PLAIN, formatAt } from "../core/layout";
import { isDate } from "../core/number-format";
import { isSameSheet } from "../core/references";
import type { Sheet } from "../core/sheet";
import { asksModel, isFormula } from "../core/typed";
import type { OutCell, OutSheet, ReadSheet } from "../files/xlsx";
import { t } from "../text";
import type { ShownSheet } from "./workbook-sync";

/** Largest file that is read. */
const FILE_BYTES_MAX = 20 << 20;

/** The sheet as rows of what `read` makes of a cell. */
function cells<T>(sheet: Sheet, read: (row: number, column: number) => T): T[][] {
  const { rows, columns } = sheet.extent();
  return Array.from({ length: rows }, (_, y) => Array.from({ length: columns }, (_, x) => read(y, x)));
}

/** How many cells still wait for an answer. */
export function waiting(sheet: Sheet): number {
  return cells(sheet, (y, x) => sheet.value(y, x) === PENDING).flat().filter(Boolean).length;
}

/** Sheets as they are shown, for readers who cannot ask the model; what waits is empty. */
export function shownOf(sheets: readonly { name: string; sheet: Sheet }[]): ShownSheet[] {
  return sheets.map(({ name, sheet }) => ({
    name,
    rows: cells(sheet, (y, x) => {
      const value = sheet.value(y, x);
      return value === PENDING ? "" : shown(value);
    }),
  }));
}

/** The sheet's values as CSV. */
export function csvOf(sheet: Sheet): string {
  const rows = cells(sheet, (y, x) => {
    const value = sheet.value(y, x);
    if (value === PENDING) return "";
    return typeof value === "string" ? harmless(value) : shown(value);
  });
  // Excel takes a CSV for UTF-8 only with this mark.
  return `\uFEFF${writeCsv(rows)}`;
}

/** The workbook as XLSX, with its formulas, formats and what is frozen. One sheet alone is named as the workbook. */
export async function xlsxOf(
  members: readonly Pick<Member, "name" | "sheet">[], name: string, looks: ReadonlyMap<string, { layout: Layout }>,
): Promise<Uint8Array> {
  const { writeXlsx } = await import("../files/xlsx");
  const names = members.length === 1 ? [] : members.map((member) => member.name);
  return writeXlsx(members.map((member): OutSheet => {
    const layout = looks.get(member.name)?.layout ?? PLAIN;
    const { frozenRows, frozenColumns } = layout;
    const rows = cells(member.sheet, (y, x) => outCell(member.sheet, layout, y, x, names));
    return { name: members.length === 1 ? name : member.name, rows, frozenRows, frozenColumns };
  }));
}

function outCell(sheet: Sheet, layout: Layout, y: number, x: number, names: readonly string[]): OutCell {
  const value = sheet.value(y, x);
  const raw = sheet.raw(y, x);
  const isOurs = asksModel(raw);
  const read = sheet.sheetsRead(y, x);
  // What is no formula here may be one elsewhere, and one that starts a program: it leaves as the text that it is.
  if (isFormula(raw) && !isOurs && !read) return { value: raw };
  const isWhole = read?.every((other) => names.some((name) => isSameSheet(name, other))) === true;
  const spill = sheet.spillOf(y, x);
  const format = formatAt(layout, y, x) ?? sheet.usualFormat(y, x);
  // Elsewhere a date is a number with a format.
  const date = typeof value === "string" && format && isDate(format) ? serialOf(value) : undefined;
  return {
    value: date ?? (value instanceof CellError || value === PENDING ? null : value),
    ...(value instanceof CellError ? { error: excelError(value) } : {}),
    ...(isWhole && !isOurs ? { formula: raw.slice(1) } : {}),
    ...(isOurs ? { aiFormula: raw } : {}),
    ...(isOurs || sheet.overrides(cellId(y, x)) === undefined ? {} : { isEdited: true }),
    ...(spill ? { spill: `${cellName(spill.row, spill.column)}:${cellName(spill.rowEnd, spill.columnEnd)}` } : {}),
    ...(format ? { format } : {}),
  };
}

/** Excel knows no `#STOPPED!`, and no `#SPILL!` and no `#ERROR!` in a file that older versions open too. */
function excelError(error: CellError): string {
  if (error.code === "#STOPPED!") return "#N/A";
  return error.code === "#SPILL!" || error.code === "#ERROR!" ? "#VALUE!" : error.code;
}

/** The sheets of a CSV or XLSX file, a CSV's without a name, and what to say of how it was read. Throws in words. */
export async function readFile(file: File): Promise<{ sheets: ReadSheet[]; note: string }> {
  if (file.size > FILE_BYTES_MAX) throw new Error(t.failure.fileMax(FILE_BYTES_MAX >> 20));
  const { sheets, note } = await parsed(file.name, new Uint8Array(await file.arrayBuffer()));
  for (const { name, rows } of sheets) {
    if (rows.length <= ROWS_MAX && rows.every((row) => row.length <= COLUMNS_MAX)) continue;
    const last = cellName(ROWS_MAX - 1, COLUMNS_MAX - 1);
    throw new Error(name ? t.failure.beyondSheet(last, name) : t.failure.beyondFile(last));
  }
  return { sheets, note };
}

async function parsed(name: string, bytes: Uint8Array): Promise<{ sheets: ReadSheet[]; note: string }> {
  if (!/\.xlsx$/i.test(name)) {
    const { text, note } = decode(bytes);
    return { sheets: [{ name: "", rows: readCsv(text) }], note };
  }
  const { readXlsx } = await import("../files/xlsx");
  return { sheets: readXlsx(bytes, (text) => new DOMParser().parseFromString(text, "application/xml")), note: "" };
}

/** A cell that keeps its formula as text, where that would ask the model. */
export function unasked(raw: string): string {
  return asksModel(raw) ? `'${raw}` : raw;
}
