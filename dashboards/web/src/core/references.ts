// References in the text of a formula, found and written anew. Works on the text, so that what somebody wrote
// stays as they wrote it; texts in quotes, function names and errors are left alone.

import { COLUMNS_MAX, ROWS_MAX, columnName, columnOf } from "./address";
import { LENGTH_MAX, SHEET, sheetNamed } from "./parse";

/** A corner as it is written: `$B7`, or `B` alone where a whole column is meant. */
export interface Corner {
  column: number;
  row: number | undefined;
  isColumnFixed: boolean;
  isRowFixed: boolean;
}

/** `A2`, `A2:B9` or `A:B`; one cell has no end. The corners stand as written, not smaller first. */
export interface Reference {
  start: Corner;
  end: Corner | undefined;
  /** The other sheet that is named, if one is. */
  sheet?: string;
}

const CELL = "\\$?[A-Za-z]{1,3}\\$?[1-9]\\d*";
const COLUMN = "\\$?[A-Za-z]{1,3}";
const PIECE = new RegExp(
  [
    '"(?:[^"]|"")*"',
    "#[A-Z/0-9]+[!?]?",
    "[A-Za-z_][A-Za-z0-9_.]*\\(",
    `(?<cellSheet>${SHEET})?(?<cell>${CELL})(?:\\s*:\\s*(?<cellEnd>${CELL}))?(?![A-Za-z0-9_(.$])`,
    `(?<columnSheet>${SHEET})?(?<column>${COLUMN})\\s*:\\s*(?<columnEnd>${COLUMN})(?![A-Za-z0-9_(.$])`,
    "[A-Za-z0-9_.]+",
  ].join("|"),
  "gu",
);

/** The formula with each reference as `change` makes it; the same object leaves its text alone, none is `#REF!`. */
export function rewrite(raw: string, change: (reference: Reference) => Reference | undefined): string {
  // What is too long is no formula, and finding references in it could take hours.
  if (!raw.startsWith("=") || raw.length > LENGTH_MAX + 1) return raw;
  return raw.replace(PIECE, (whole: string, ...rest: unknown[]) => {
    const groups = rest.at(-1) as Record<string, string | undefined>;
    const first = groups["cell"] ?? groups["column"];
    if (first === undefined) return whole;
    const second = groups["cellEnd"] ?? groups["columnEnd"];
    const [start, end] = [corner(first), second === undefined ? undefined : corner(second)];
    if (!inside(start) || (end && !inside(end))) return whole;
    const named = groups["cellSheet"] ?? groups["columnSheet"];
    const reference: Reference = named === undefined ? { start, end } : { start, end, sheet: sheetNamed(named) };
    const changed = change(reference);
    if (changed === reference) return whole;
    if (!changed || !inside(changed.start) || (changed.end && !inside(changed.end))) return "#REF!";
    const sheet = changed.sheet === reference.sheet ? (named ?? "") : `${sheetText(changed.sheet ?? "")}!`;
    return sheet + (changed.end ? `${written(changed.start)}:${written(changed.end)}` : written(changed.start));
  });
}

/** A sheet's name as a formula has it: in quotes where it is more than a word, or could be a cell. */
export function sheetText(name: string): string {
  return /^[\p{L}_][\p{L}\d_]*$/u.test(name) && !/^[A-Za-z]{1,3}\d+$/.test(name) ? name : `'${name.replaceAll("'", "''")}'`;
}

/** Whether two names are of one sheet. */
export const isSameSheet = (a: string | undefined, b: string | undefined) => a?.toLowerCase() === b?.toLowerCase();

/** A formula after a sheet has got another name; `#REF!` for what read it where it is gone. */
export function renameSheet(raw: string, before: string, after: string | undefined): string {
  return rewrite(raw, (reference) => {
    if (reference.sheet === undefined || !isSameSheet(reference.sheet, before)) return reference;
    return after === undefined ? undefined : { ...reference, sheet: after };
  });
}

function corner(text: string): Corner {
  const [, columnFixed = "", letters = "", rowFixed = "", digits] = /^(\$?)([A-Za-z]+)(\$?)(\d+)?$/.exec(text) ?? [];
  return {
    column: columnOf(letters), row: digits === undefined ? undefined : Number(digits) - 1,
    isColumnFixed: columnFixed !== "", isRowFixed: rowFixed !== "",
  };
}

function inside({ column, row }: Corner): boolean {
  return column >= 0 && column < COLUMNS_MAX && (row === undefined || (row >= 0 && row < ROWS_MAX));
}

function written({ column, row, isColumnFixed, isRowFixed }: Corner): string {
  const letters = `${isColumnFixed ? "$" : ""}${columnName(column)}`;
  return row === undefined ? letters : `${letters}${isRowFixed ? "$" : ""}${row + 1}`;
}
