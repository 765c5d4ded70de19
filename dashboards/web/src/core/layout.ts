// How a sheet looks, apart from what is typed in it: formats, filters, frozen rows and columns, charts. All of it is optional
// in what is kept, so that a sheet of before opens.

import { type Area, COLUMNS_MAX, contains } from "./address";
import { type Edit, moved, spanAfter } from "./arrange";

/** A number format of an area; later ones stand before earlier ones. */
export interface FormatArea extends Area {
  code: string;
}

/** What of a column is shown: all but some texts, of that what fulfils a criterion, as `COUNTIF` has them. */
export interface ColumnFilter {
  column: number;
  hidden: string[];
  criterion: string;
}

export const CHART_KINDS = ["column", "bar", "line", "area", "pie", "scatter"] as const;
export type ChartKind = (typeof CHART_KINDS)[number];

/** A chart of an area. */
export interface ChartOptions {
  kind: ChartKind;
  title: string;
  area: Area;
}

/** How a sheet looks. */
export interface Layout {
  formats: readonly FormatArea[];
  filters: readonly ColumnFilter[];
  frozenRows: number;
  frozenColumns: number;
  charts: readonly ChartOptions[];
}

/** Most frozen rows and columns: the rest must have room. */
export const FROZEN_ROWS_MAX = 10;
export const FROZEN_COLUMNS_MAX = 5;
/** Most areas with a format, and most charts. */
export const FORMAT_AREAS_MAX = 2_000;
export const CHARTS_MAX = 12;

/** A sheet that nobody has arranged. */
export const PLAIN: Layout = { formats: [], filters: [], frozenRows: 0, frozenColumns: 0, charts: [] };

/** What is kept of a layout; `undefined` of one that says nothing. */
export function keptLayout(layout: Layout): Layout | undefined {
  return JSON.stringify(layout) === JSON.stringify(PLAIN) ? undefined : layout;
}

/** A layout that was kept, by this page or by an older one. */
export function layoutOf(kept: Partial<Layout> | undefined): Layout {
  return { ...PLAIN, ...kept };
}

/** The formats down a column: where each stretch begins, and its code. */
interface Stretches {
  starts: number[];
  codes: (string | undefined)[];
}

/** Of formats, column by column: a file may have thousands, and each cell that is drawn asks for its own. */
const STRETCHES = new WeakMap<readonly FormatArea[], Map<number, Stretches>>();

function stretchesOf(formats: readonly FormatArea[], column: number): Stretches {
  const known = STRETCHES.get(formats) ?? new Map<number, Stretches>();
  STRETCHES.set(formats, known);
  const made = known.get(column) ?? stretches(formats.filter(({ column: first, columnEnd }) => first <= column && column <= columnEnd));
  known.set(column, made);
  return made;
}

function stretches(formats: readonly FormatArea[]): Stretches {
  const starts = [...new Set([0, ...formats.flatMap(({ row, rowEnd }) => [row, rowEnd + 1])])].sort((a, b) => a - b);
  const places = new Map(starts.map((start, place) => [start, place]));
  const codes = starts.map((): string | undefined => undefined);
  for (const { row, rowEnd, code } of formats) codes.fill(code || undefined, places.get(row), places.get(rowEnd + 1));
  return { starts, codes };
}

/** The format of a cell, where somebody chose one; "" is none again. */
export function formatAt({ formats }: Layout, row: number, column: number): string | undefined {
  if (formats.length === 0) return undefined;
  const { starts, codes } = stretchesOf(formats, column);
  let [low, high] = [0, starts.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((starts[middle] as number) <= row) low = middle;
    else high = middle;
  }
  return codes[low];
}

/** The layout with a format for an area. What lies under it whole is forgotten. */
export function withFormat(layout: Layout, area: Area, code: string): Layout {
  const isCovered = (other: Area) => contains(area, other.row, other.column) && contains(area, other.rowEnd, other.columnEnd);
  const { row, column, rowEnd, columnEnd } = area;
  const rest = layout.formats.filter((format) => !isCovered(format));
  const isNeeded = code !== "" || rest.some((format) => overlaps(format, area));
  return { ...layout, formats: isNeeded ? [...rest, { row, column, rowEnd, columnEnd, code }].slice(-FORMAT_AREAS_MAX) : rest };
}

function overlaps(a: Area, b: Area): boolean {
  return a.row <= b.rowEnd && b.row <= a.rowEnd && a.column <= b.columnEnd && b.column <= a.columnEnd;
}

/** The layout with another filter of a column; none where it hides nothing. */
export function withFilter(layout: Layout, filter: ColumnFilter): Layout {
  const rest = layout.filters.filter(({ column }) => column !== filter.column);
  const isFilter = filter.hidden.length > 0 || filter.criterion !== "";
  return { ...layout, filters: isFilter ? [...rest, filter] : rest };
}

/** A layout after rows or columns came or went. */
export function layoutAfter(layout: Layout, edit: Edit): Layout {
  const formats = layout.formats.flatMap((format) => {
    const area = areaAfter(format, edit);
    return area ? [{ ...format, ...area }] : [];
  });
  const charts = layout.charts.flatMap((chart) => {
    const area = areaAfter(chart.area, edit);
    return area ? [{ ...chart, area }] : [];
  });
  const isOfColumns = edit.axis === "column";
  const filters = !isOfColumns ? layout.filters : layout.filters.flatMap((filter) => {
    const column = moved(filter.column, edit);
    return column === undefined || column >= COLUMNS_MAX ? [] : [{ ...filter, column }];
  });
  return {
    formats, filters,
    frozenRows: isOfColumns ? layout.frozenRows : frozenAfter(layout.frozenRows, edit, FROZEN_ROWS_MAX),
    frozenColumns: isOfColumns ? frozenAfter(layout.frozenColumns, edit, FROZEN_COLUMNS_MAX) : layout.frozenColumns,
    charts,
  };
}

function areaAfter(area: Area, edit: Edit): Area | undefined {
  const [low, high] = edit.axis === "row" ? [area.row, area.rowEnd] : [area.column, area.columnEnd];
  const span = spanAfter(low, high, edit);
  if (!span) return undefined;
  const { row, column, rowEnd, columnEnd } = area;
  return edit.axis === "row"
    ? { row: span[0], rowEnd: span[1], column, columnEnd }
    : { column: span[0], columnEnd: span[1], row, rowEnd };
}

function frozenAfter(frozen: number, { kind, at, count }: Edit, most: number): number {
  if (at >= frozen) return frozen;
  return kind === "insert" ? Math.min(most, frozen + count) : frozen - Math.min(count, frozen - at);
}
