// What a chart of an area shows: a row of headers where there is one, a column of names where the first is none of numbers,
// and a series for each column of numbers. Columns of texts alone, such as a column of classes, are counted.

import { type Scalar, shown } from "relserve-client/value";

import { t } from "../text";
import { type Area, columnName } from "./address";
import { textAt } from "./filter";
import type { Layout } from "./layout";
import type { Sheet } from "./sheet";

/** A series of numbers. */
export interface ChartSeries {
  name: string;
  values: (number | null)[];
}

/** What is drawn. */
export interface ChartData {
  labels: string[];
  series: ChartSeries[];
  /** What the first column is, where it is one of names or of the numbers of an axis. */
  axis: string;
}

/** Most rows that are drawn, and most columns. */
const ROWS_MAX = 5_000;
const SERIES_MAX = 12;

type Cells = Pick<Sheet, "value" | "extent" | "usualFormat">;

/** What a chart of an area shows; hidden rows are left out. `isByNumbers`: the first column is the axis although it has numbers. */
export function chartData(
  sheet: Cells, layout: Layout, area: Area, isHidden: (row: number) => boolean, isByNumbers = false,
): ChartData {
  const used = sheet.extent();
  const last = { row: Math.min(area.rowEnd, used.rows - 1), column: Math.min(area.columnEnd, used.columns - 1) };
  const columns = Array.from({ length: Math.max(0, last.column - area.column + 1) }, (_, i) => area.column + i);
  const hasHeader = last.row > area.row && columns.some((column) => typeof sheet.value(area.row, column) === "string") &&
    columns.every((column) => typeof sheet.value(area.row, column) !== "number");
  const rows: number[] = [];
  for (let row = area.row + Number(hasHeader); row <= last.row && rows.length < ROWS_MAX; row += 1) if (!isHidden(row)) rows.push(row);
  const name = (column: number) => (hasHeader && shown(sheet.value(area.row, column)).trim()) || columnName(column);
  const isNumeric = (column: number) => rows.some((row) => typeof sheet.value(row, column) === "number");
  const text = (row: number, column: number) => textAt(sheet, layout, row, column);
  const [first = area.column] = columns;
  const isAxis = columns.length > 1 && (!isNumeric(first) || isByNumbers || isDated(layout, sheet, rows, first));
  const drawn = columns.filter((column) => isNumeric(column) && !(isAxis && column === first)).slice(0, SERIES_MAX);
  if (drawn.length === 0) return counted(rows.map((row) => text(row, columns.at(-1) ?? first)), name(columns.at(-1) ?? first));
  return {
    labels: rows.map((row) => (isAxis ? text(row, first) : String(row + 1))),
    series: drawn.map((column) => ({ name: name(column), values: rows.map((row) => number(sheet.value(row, column))) })),
    axis: isAxis ? name(first) : t.chart.row,
  };
}

const number = (value: Scalar) => (typeof value === "number" ? value : null);

/** Whether a column's numbers are dates. */
function isDated(layout: Layout, sheet: Cells, rows: readonly number[], column: number): boolean {
  const row = rows[0];
  return row !== undefined && /^\d{4}-\d{2}-\d{2}|\d{2}\.\d{2}\.\d{4}/.test(textAt(sheet, layout, row, column));
}

/** How often each text is there, the most frequent first. */
function counted(texts: readonly string[], name: string): ChartData {
  const counts = new Map<string, number>();
  for (const text of texts) if (text !== "") counts.set(text, (counts.get(text) ?? 0) + 1);
  const sorted = [...counts].sort(([, a], [, b]) => b - a).slice(0, 100);
  return { labels: sorted.map(([text]) => text), series: sorted.length > 0 ? [{ name: t.chart.countOf(name), values: sorted.map(([, count]) => count) }] : [], axis: name };
}
