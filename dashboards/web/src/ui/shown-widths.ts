// Columns as this screen shows them. The grid's attribute `width` is what the workbook keeps; where a narrow screen shows less
// of a column, the style says so and nothing of it is saved.

import type jspreadsheet from "jspreadsheet-ce";

import { answersColumn, fitWidths, widthsOn } from "../core/widths";
import { setWidths, silently } from "./history";

type Worksheet = jspreadsheet.WorksheetInstance;

/** Pixels that the page has. `innerWidth` is more than that for a moment when a phone is turned. */
export const screenWidth = () => document.documentElement.clientWidth;

/** The width that the workbook keeps of a column, where the grid has the column. */
export function keptWidth(worksheet: Worksheet, column: number): number | undefined {
  return Number(worksheet.cols[column]?.colElement.getAttribute("width")) || undefined;
}

/** And the one that is shown. */
export function shownWidth(worksheet: Worksheet, column: number): number | undefined {
  return Number.parseFloat(worksheet.cols[column]?.colElement.style.width ?? "") || keptWidth(worksheet, column);
}

/** Shows the columns as a screen of so many pixels has room for them; gives whether one is shown otherwise than before. */
export function showWidths(worksheet: Worksheet, screen: number): boolean {
  const kept = worksheet.cols.map((_, column) => keptWidth(worksheet, column) ?? 0);
  const shown = widthsOn(screen, kept, answersColumn((worksheet.options.data ?? []) as unknown[][]));
  let isOther = false;
  for (const [column, { colElement }] of worksheet.cols.entries()) {
    const [width = 0, whole = 0] = [shown[column], kept[column]];
    const isLess = width < whole && colElement.dataset["chosen"] === undefined;
    const style = isLess ? `${width}px` : "";
    if (isLess) colElement.dataset["kept"] = String(whole);
    if (colElement.style.width === style) continue;
    colElement.style.width = style;
    isOther = true;
  }
  return isOther;
}

/** Gives columns that are empty and as wide as any (`usual`) the widths of rows that come into them, outside of the history. */
export function fitEmpty(worksheet: Worksheet, rows: readonly (readonly string[])[], first: number, usual: number): void {
  const data = (worksheet.options.data ?? []) as unknown[][];
  const isFree = (column: number) => keptWidth(worksheet, column) === usual && data.every((row) => String(row[column] ?? "") === "");
  const wishes = fitWidths(rows);
  const widths = worksheet.cols.map((_, column) => {
    const wish = wishes[column - first];
    return wish !== undefined && isFree(column) ? wish : (keptWidth(worksheet, column) ?? usual);
  });
  silently(worksheet, () => setWidths(worksheet, widths));
}

/** Somebody dragged a column's edge: it is shown as that left it, and an undo brings back what the workbook had. */
export function chooseWidth(worksheet: Worksheet, column: number): void {
  const element = worksheet.cols[column]?.colElement;
  const step = worksheet.history[worksheet.historyIndex];
  if (!element?.style.width || step?.action !== "setWidth") return;
  element.style.width = "";
  element.dataset["chosen"] = "";
  // The grid takes what it showed for what was there.
  Object.assign(step, { oldValue: Number(element.dataset["kept"]) });
}
