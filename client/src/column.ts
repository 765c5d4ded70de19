// A column of answers out of the columns beside it: from what somebody asks for in words to a formula, or to the
// arguments of its calls.

import { cellName, columnName } from "./a1";
import { type AiFunction, type Argument, CATALOGUE } from "./catalogue";
import { type Matrix, type Scalar, type Value, shown } from "./value";
import { words } from "./words";

/** Rows that are looked at before all are asked. */
export const PREVIEW_ROWS = 5;

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

/** A sheet as far as its table is concerned. */
export interface Cells {
  value(row: number, column: number): Scalar;
  extent(): { rows: number; columns: number };
}

/** How a sheet writes formulas. */
export interface Dialect {
  /** A function's name, from `AI.ASK`. */
  name(name: string): string;
  /** What parts arguments. */
  separator: string;
  /** Texts and ranges joined by `&`, so that they are joined row by row. */
  joined(text: string): string;
}

/** The page's formulas, and Excel's. */
export const DOTTED: Dialect = { name: (name) => name, separator: ", ", joined: (text) => text };

/** What a sheet holds; nothing where there are no rows. Columns without a title go by their letters, counted from `left`. */
export function tableOf(sheet: Cells, left = 0): Table | undefined {
  const { rows, columns } = sheet.extent();
  const top = Array.from({ length: columns }, (_, column) => sheet.value(0, column));
  const named = top.filter((value) => value !== null);
  const hasHeader = rows > 1 && named.length > 0 && named.every((value) => typeof value === "string" && value.length <= HEADER_MAX);
  if (rows === 0) return undefined;
  const headers = top.map((value, column) => ({ name: (hasHeader && shown(value).trim()) || columnName(left + column), column }));
  return { headers, first: hasHeader ? 1 : 0, last: rows - 1, free: columns };
}

/** The arguments that somebody types for a column: all but the column that it runs over, and tables as context. */
export function fieldsOf(item: AiFunction): Argument[] {
  return item.arguments.filter(({ name }, i) => (i === item.over ? name === "prompt" : name !== "context"));
}

/** The first rows of a table, to look at. */
export function previewOf(table: Table): Table {
  return { ...table, last: Math.min(table.last, table.first + PREVIEW_ROWS - 1) };
}

/** The formula of a column over rows of a table. Throws a `ColumnError`. */
export function formulaOf(wanted: AiColumn, table: Table, dialect: Dialect = DOTTED): string {
  const range = (column: number) => `${cellName(table.first, column)}:${cellName(table.last, column)}`;
  const prompt = (text: string) => {
    const parts = partsOf(text, table).map((part) => (typeof part === "number" ? range(part) : quoted(part)));
    return parts.length === 1 ? parts.join() : dialect.joined(parts.join("&"));
  };
  const args = argumentsOf(wanted, {
    prompt, column: range, number: String, text: quoted, left: () => "",
  });
  while (args.at(-1) === "") args.pop();
  return `=${dialect.name(wanted.function)}(${args.join(dialect.separator)})`;
}

/** The values of a column's arguments over rows of a table, where no sheet works a formula out. Throws a `ColumnError`. */
export function valuesOf(wanted: AiColumn, table: Table, value: Cells["value"]): (Value | undefined)[] {
  const rows = Array.from({ length: table.last - table.first + 1 }, (_, i) => table.first + i);
  const column = (at: number): Matrix => rows.map((row) => [value(row, at)]);
  const prompt = (text: string) => {
    const parts = partsOf(text, table);
    const isBlank = (row: number) => parts.every((part) => typeof part === "string" || value(row, part) === null);
    const joined = (row: number) => parts.map((part) => (typeof part === "string" ? part : shown(value(row, part)))).join("");
    // A row without anything to ask about is no question.
    return rows.map((row) => [isBlank(row) ? null : joined(row)]);
  };
  return argumentsOf<Value | undefined>(wanted, { prompt, column, number: (given) => given, text: (given) => given, left: () => undefined });
}

/** What becomes of each kind of argument. */
interface Writers<T> {
  prompt(text: string): T;
  column(at: number): T;
  number(given: number): T;
  text(given: string): T;
  left(): T;
}

function argumentsOf<T>(wanted: AiColumn, write: Writers<T>): T[] {
  const item = CATALOGUE.get(wanted.function);
  if (!item) throw new ColumnError(words.noFunction(wanted.function));
  return item.arguments.map(({ name, kind, optional }, i) => {
    const text = (wanted.texts[name] ?? "").trim();
    if (i === item.over) return name === "prompt" ? write.prompt(text) : write.column(wanted.over);
    if (text === "" && !optional) throw new ColumnError(words.leftEmpty(name));
    if (kind === "number" && text !== "" && !Number.isFinite(Number(text))) throw new ColumnError(words.notNumber(name));
    if (text === "") return write.left();
    return kind === "number" ? write.number(Number(text)) : write.text(text);
  });
}

/** A text with columns in braces, as texts and columns. */
function partsOf(text: string, table: Table): (string | number)[] {
  const parts = text.split(/\{([^{}]+)\}/);
  if (parts.length === 1) throw new ColumnError(words.noColumns);
  return parts.flatMap((part, i): (string | number)[] => {
    if (i % 2 === 0) return part === "" ? [] : [part];
    const header = table.headers.find(({ name }) => name.toLowerCase() === part.trim().toLowerCase());
    if (!header) throw new ColumnError(words.unknownColumn(part.trim()));
    return [header.column];
  });
}

function quoted(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}
