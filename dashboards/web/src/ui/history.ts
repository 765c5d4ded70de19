// Steps of the grid's history that are ours: rows and columns that came, went or were sorted. The grid walks its
// history and hands over what it does not know; what it knows (typing, pasting, widths) it does itself.

import type jspreadsheet from "jspreadsheet-ce";

import type { Step } from "../core/arrange";
import type { Layout } from "../core/layout";
import type { Origins } from "../core/origins";

type Worksheet = jspreadsheet.WorksheetInstance;

/** Cells of another sheet of the workbook that change along. */
export interface StepElsewhere {
  sheet: string;
  cells: readonly Step[];
  /** Where its values come from that stand instead of answers: their formulas read the edited sheet too. */
  origins: { before: Origins; after: Origins };
}

/** A step of many cells, and of how the sheet looks. */
export interface Arranged {
  cells: readonly Step[];
  widths: { before: readonly number[]; after: readonly number[] };
  layout: { before: Layout; after: Layout };
  elsewhere: readonly StepElsewhere[];
  /** Where values come from that stand instead of answers, where the step moves or makes some. */
  origins?: { before: Origins; after: Origins } | undefined;
}

const ACTION = "relserve-arrange";
/** Most steps, and most cells of them together: some 50 MB. The last step is kept however large it is. */
const STEPS_MAX = 200;
const CELLS_MAX = 500_000;

/** Puts a step at the end of the history, which forgets what was undone; gives its record. */
export function addStep(worksheet: Worksheet, step: Arranged): unknown {
  const record = { action: ACTION, step };
  worksheet.history = worksheet.history.slice(0, worksheet.historyIndex + 1);
  worksheet.history.push(record as unknown as Worksheet["history"][number]);
  worksheet.historyIndex = worksheet.history.length - 1;
  return record;
}

/** Lays a step of ours into the grid's data, forwards or backwards, and gives it; none for a step of the grid's own. */
export function applyStep(worksheet: Worksheet, record: unknown, isForward: boolean): Arranged | undefined {
  const step = stepOf(record);
  const data = worksheet.options.data as unknown[][] | undefined;
  if (!step || !data) return undefined;
  for (const { row, column, before, after } of step.cells) {
    const line = data[row];
    if (line) line[column] = isForward ? after : before;
  }
  setWidths(worksheet, isForward ? step.widths.after : step.widths.before);
  return step;
}

/** Whether a step, of ours or of the grid's own, changes widths of columns. */
export function changesWidths(record: unknown): boolean {
  const step = stepOf(record);
  if (!step) return (record as { action?: string } | undefined)?.action === "setWidth";
  return step.widths.before.some((width, column) => width !== step.widths.after[column]);
}

/** A cell of a step that typed into cells, with what stands in it after the step. */
export interface TypedRecord {
  x: number | string;
  y: number | string;
  value: unknown;
}

/** The cells of the last step, where that typed into cells. */
export function typedRecords(worksheet: Worksheet): TypedRecord[] | undefined {
  const step = worksheet.history[worksheet.historyIndex];
  return step?.action === "setValue" ? (step["records"] as TypedRecord[]) : undefined;
}

function stepOf(record: unknown): Arranged | undefined {
  const { action, step } = (record ?? {}) as { action?: string; step?: Arranged };
  return action === ACTION ? step : undefined;
}

/** Sets the columns' widths, outside of the history. */
export function setWidths(worksheet: Worksheet, widths: readonly number[]): void {
  const before = worksheet.ignoreHistory;
  worksheet.ignoreHistory = true;
  for (const [column, width] of widths.entries()) {
    const shown = worksheet.cols[column]?.colElement.getAttribute("width");
    if (shown !== undefined && Number(shown) !== width) worksheet.setWidth(column, width);
  }
  worksheet.ignoreHistory = before;
}

/** Does something to the grid of which nobody is told. */
export function silently(worksheet: Worksheet, act: () => void): void {
  const before = worksheet.parent.ignoreEvents ?? false;
  worksheet.parent.ignoreEvents = true;
  act();
  worksheet.parent.ignoreEvents = before;
}

/** Forgets the oldest steps that are too many or too large. */
export function trim(worksheet: Worksheet): void {
  const { history } = worksheet;
  let cells = history.reduce((sum, record) => sum + weight(record), 0);
  while (history.length > 1 && (history.length > STEPS_MAX || cells > CELLS_MAX)) {
    cells -= weight(history.shift());
    worksheet.historyIndex -= 1;
  }
}

function weight(record: unknown): number {
  const { records } = (record ?? {}) as { records?: unknown[] };
  return stepOf(record)?.cells.length ?? records?.length ?? 1;
}
