// The open sheet of Excel, for the wizard: read whole, written where a column goes.

import { scalar } from "../../shared/plan";
import type { Place, SheetCells } from "../../pane/host";
import { asText } from "./selection";

/** The used cells of the active sheet; nothing where it is empty. */
export async function read(context: Excel.RequestContext): Promise<SheetCells | undefined> {
  const sheet = context.workbook.worksheets.getActiveWorksheet();
  const used = sheet.getUsedRangeOrNullObject(true);
  sheet.load(["id", "name"]);
  used.load(["values", "rowIndex", "columnIndex"]);
  await context.sync();
  if (used.isNullObject) return undefined;
  const values = (used.values as (string | number | boolean)[][]).map((row) => row.map(scalar));
  return { id: sheet.id, name: sheet.name, row: used.rowIndex, column: used.columnIndex, values };
}

/** Writes a formula or a title. */
export async function writeCell(context: Excel.RequestContext, place: Place, content: string): Promise<void> {
  const cell = rangeOf(context, place, 1);
  if (content.startsWith("=AI.")) cell.formulas = [[content]];
  else cell.values = [[asText(content)]];
  await context.sync();
}

/** Writes answers downwards. */
export async function writeAnswers(context: Excel.RequestContext, place: Place, answers: (string | number | null)[]): Promise<void> {
  rangeOf(context, place, answers.length).values = answers.map((answer) => [asText(answer ?? "")]);
  await context.sync();
}

function rangeOf(context: Excel.RequestContext, { sheet, row, column }: Place, rows: number): Excel.Range {
  return context.workbook.worksheets.getItem(sheet).getRangeByIndexes(row, column, rows, 1);
}
