// The open spreadsheet for the sidebar: read whole, written where a column goes.

import type { Place, SheetCells } from "../../pane/host";
import { scalarOf } from "./ask";
import { asText } from "./selection";

/** The part of `Sheet` that is used. */
export interface PanelSheet {
  getSheetId(): number;
  getName(): string;
  getLastRow(): number;
  getMaxColumns(): number;
  insertColumnAfter(column: number): unknown;
  getDataRange(): { getValues(): unknown[][] };
  getRange(row: number, column: number, rows: number, columns: number): {
    setValues(values: unknown[][]): unknown;
    setFormula(formula: string): unknown;
  };
}

/** The part of the spreadsheet that is used. */
export interface PanelBook {
  getActiveSheet(): PanelSheet;
  getSheets(): PanelSheet[];
}

/** The used cells of the active sheet; nothing where it is empty. Its data begin in A1. */
export function read(book: PanelBook, dateText: (date: Date) => string): SheetCells | null {
  const sheet = book.getActiveSheet();
  if (sheet.getLastRow() === 0) return null;
  const values = sheet.getDataRange().getValues().map((row) => row.map((cell) => plain(scalarOf({ dateText }, cell))));
  return { id: String(sheet.getSheetId()), name: sheet.getName(), row: 0, column: 0, values };
}

/** An error is no value that a page can be sent. Nobody asks about it. */
function plain<T>(value: T): T | null {
  return typeof value === "object" || typeof value === "symbol" ? null : value;
}

/** Writes a formula or a title. */
export function writeCell(book: PanelBook, place: Place, content: string): void {
  const range = rangeOf(book, place, 1);
  if (content.startsWith("=AI_")) range.setFormula(content);
  else range.setValues([[asText(content)]]);
}

/** Writes answers downwards. */
export function writeAnswers(book: PanelBook, place: Place, answers: (string | number | null)[]): void {
  rangeOf(book, place, answers.length).setValues(answers.map((answer) => [asText(answer ?? "")]));
}

function rangeOf(book: PanelBook, { sheet: id, row, column }: Place, rows: number) {
  const sheet = book.getSheets().find((other) => String(other.getSheetId()) === id);
  if (!sheet) throw new Error("the sheet is gone");
  // A sheet whose last column is full has none to write into.
  if (column >= sheet.getMaxColumns()) sheet.insertColumnAfter(sheet.getMaxColumns());
  return sheet.getRange(row + 1, column + 1, rows, 1);
}
