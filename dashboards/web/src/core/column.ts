// A column of answers out of the columns beside it: from what somebody asks for in words to a formula.

import { CATALOGUE, type AiFunction } from "relserve-client/catalogue";
import { shown } from "relserve-client/value";

import { cellName, columnName } from "./address";
import type { Sheet } from "./sheet";

/** The rows of a sheet under their headers. */
export interface Table {
  headers: { name: string; column: number }[];
  /** First and last row of the data. */
  first: number;
  last: number;
  /** The first column with nothing in it. */
  free: number;
}

/** A column that is wanted. */
export interface AiColumn {
  /** The function: `AI.CLASSIFY`. */
  function: string;
  /** The column that it runs over; a prompt names its columns itself. */
  over: number;
  /** Its other arguments by name, as typed; of `AI.ASK` the prompt, with columns as `{Review}`. */
  texts: Readonly<Record<string, string>>;
}

/** Something that makes no column, in words. */
export class ColumnError extends Error {}

/** Functions that make sense of one row at a time, the free prompt first. */
export const COLUMN_FUNCTIONS: readonly (readonly [string, AiFunction])[] =
  [...CATALOGUE].filter(([name]) => name !== "AI.FILL" && name !== "AI.LIST");

/** Headers are short texts; a row of data mostly is not. */
const HEADER_MAX = 60;

/** What a sheet holds; nothing where there are no rows. */
export function tableOf(sheet: Pick<Sheet, "value" | "extent">): Table | undefined {
  const { rows, columns } = sheet.extent();
  const top = Array.from({ length: columns }, (_, column) => sheet.value(0, column));
  const named = top.filter((value) => value !== null);
  const hasHeader = rows > 1 && named.length > 0 && named.every((value) => typeof value === "string" && value.length <= HEADER_MAX);
  if (rows === 0) return undefined;
  const headers = top.map((value, column) => ({ name: (hasHeader && shown(value).trim()) || columnName(column), column }));
  return { headers, first: hasHeader ? 1 : 0, last: rows - 1, free: columns };
}

/** The formula of a column over rows of a table. Throws a `ColumnError`. */
export function formulaOf(wanted: AiColumn, table: Table): string {
  const item = CATALOGUE.get(wanted.function);
  if (!item) throw new ColumnError(`there is no function ${wanted.function}`);
  const range = (column: number) => `${cellName(table.first, column)}:${cellName(table.last, column)}`;
  const args = item.arguments.map(({ name, kind, optional }, i) => {
    const text = (wanted.texts[name] ?? "").trim();
    if (i === item.over) return name === "prompt" ? promptOf(text, table, range) : range(wanted.over);
    if (text === "" && !optional) throw new ColumnError(`${name} is missing`);
    if (kind === "number" && text !== "" && !Number.isFinite(Number(text))) throw new ColumnError(`${name} is no number`);
    return text === "" || kind === "number" ? text : quoted(text);
  });
  while (args.at(-1) === "") args.pop();
  return `=${wanted.function}(${args.join(", ")})`;
}

/** A text with columns in braces, as texts and ranges joined by `&`. */
function promptOf(text: string, table: Table, range: (column: number) => string): string {
  const parts = text.split(/\{([^{}]+)\}/);
  if (parts.length === 1) throw new ColumnError("the prompt names no column: write one in braces, such as {Review}");
  const joined = parts.map((part, i) => {
    if (i % 2 === 0) return part === "" ? "" : quoted(part);
    const header = table.headers.find(({ name }) => name.toLowerCase() === part.trim().toLowerCase());
    if (!header) throw new ColumnError(`there is no column {${part.trim()}}`);
    return range(header.column);
  });
  return joined.filter((part) => part !== "").join("&");
}

function quoted(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}
