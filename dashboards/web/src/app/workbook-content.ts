// Whether a workbook that the server hands out is one that this page can show. Whoever has a key of the tenant may have
// saved it, by other means than this page: a cell that is no text would else stop the page of everybody who gets it.

import { COLUMNS_MAX, ROWS_MAX } from "../core/address";
import { CHART_KINDS } from "../core/layout";
import { t } from "../text";

type Check = (value: unknown) => boolean;

const isText: Check = (value) => typeof value === "string";
const isCount: Check = (value) => Number.isInteger(value) && Number(value) >= 0;
const isOptional = (check: Check): Check => (value) => value === undefined || check(value);
const isList = (check: Check, most = Infinity): Check => (value) => Array.isArray(value) && value.length <= most && value.every(check);
const isObject = (fields: Record<string, Check>): Check => (value) =>
  typeof value === "object" && value !== null &&
  Object.entries(fields).every(([name, check]) => check((value as Record<string, unknown>)[name]));

const AREA = { row: isCount, column: isCount, rowEnd: isCount, columnEnd: isCount };
const isLayout = isObject({
  formats: isOptional(isList(isObject({ ...AREA, code: isText }))),
  filters: isOptional(isList(isObject({ column: isCount, hidden: isList(isText), criterion: isText }))),
  frozenRows: isOptional(isCount),
  frozenColumns: isOptional(isCount),
  charts: isOptional(isList(isObject({ kind: (value) => CHART_KINDS.some((kind) => kind === value), title: isText, area: isObject(AREA) }))),
});
const isOrigin: Check = (value) => Array.isArray(value) && isCount(value[0]) && isText(value[1]) && isText(value[2]);
const SHEET = {
  rows: isList(isList(isText, COLUMNS_MAX), ROWS_MAX),
  widths: isList((value) => Number.isFinite(value)),
  layout: isOptional(isLayout),
  origins: isOptional(isList(isOrigin)),
};
const isContent = isObject({
  ...SHEET,
  first: isOptional(isText),
  model: isOptional(isText),
  further: isOptional(isList(isObject({ ...SHEET, name: isText }))),
  shown: isOptional(isList(isObject({ name: isText, rows: isList(isList(isText)) }))),
});

/** The workbook as it is. Throws in words where its content is none of a page's. */
export function readable<T extends { name: string; content: unknown }>(read: T): T {
  if (!isContent(read.content)) throw new Error(t.failure.notReadable(read.name));
  return read;
}
