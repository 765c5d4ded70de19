// The menu, and what its entries do with the open sheet. Apps Script objects are used as they come; what becomes of
// cells is decided in `selection.ts`.

import { type Cell, type Edits, type Selection, again, asValues, inFormulas, unfinished } from "./selection";

/** The part of `Range` that is used. */
export interface Range {
  getFormulas(): string[][];
  getValues(): Cell[][];
  getCell(row: number, column: number): Range;
  setValue(value: Cell): unknown;
  setFormula(formula: string): unknown;
  clearContent(): unknown;
}

/** The part of `SpreadsheetApp` that is used. */
export interface Sheets {
  getActiveRange(): Range | null;
  getActiveSheet(): { getDataRange(): Range };
  flush(): void;
}

/** What an entry did, in words for a message. */
export function keepValues(sheets: Sheets): string {
  return edit(sheets.getActiveRange(), asValues, "Cells kept as values", (range, edits) => write(range, edits.cells));
}

/** Puts answers into the formulas of the selection. */
export function keepInFormulas(sheets: Sheets): string {
  return edit(sheets.getActiveRange(), inFormulas, "Formulas kept with their answers", (range, edits) => write(range, edits.cells));
}

/** Asks the selected formulas again. */
export function askAgain(sheets: Sheets): string {
  return edit(sheets.getActiveRange(), again, "Asked again", (range, edits) => enter(sheets, range, edits));
}

/** Enters the formulas of the sheet again whose answers were late or failed: their tickets have them by now. */
export function fetchLate(sheets: Sheets): string {
  const range = sheets.getActiveSheet().getDataRange();
  return edit(range, unfinished, "Calculated again", (found, edits) => enter(sheets, found, edits));
}

function edit(
  range: Range | null, plan: (selection: Selection) => Edits, done: string, carryOut: (range: Range, edits: Edits) => void,
): string {
  if (!range) return "Select cells first.";
  const edits = plan({ formulas: range.getFormulas(), values: range.getValues() });
  carryOut(range, edits);
  const reasons = [...new Set(edits.left.map(({ reason }) => reason))];
  const left = edits.left.length > 0 ? ` Left as they are: ${edits.left.length} (${reasons.join("; ")}).` : "";
  return `${done}: ${edits.cells.length}.${left}`;
}

function write(range: Range, cells: Edits["cells"]): void {
  for (const { row, column, write: content } of cells) {
    const cell = range.getCell(row + 1, column + 1);
    if (typeof content === "string" && content.startsWith("=")) cell.setFormula(content);
    else cell.setValue(content);
  }
}

/** A formula that is entered as it was is not calculated: it is taken out first, and that is made to happen. */
function enter(sheets: Sheets, range: Range, { cells }: Edits): void {
  for (const { row, column } of cells) range.getCell(row + 1, column + 1).clearContent();
  sheets.flush();
  write(range, cells);
  sheets.flush();
}
