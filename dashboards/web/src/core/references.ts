// References in the text of a formula, found and written anew. Works on the text, so that what somebody wrote
// stays as they wrote it; texts in quotes, function names and errors are left alone.

import { COLUMNS_MAX, ROWS_MAX, columnName, columnOf } from "./address";

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
}

const CELL = "\\$?[A-Za-z]{1,3}\\$?[1-9]\\d*";
const COLUMN = "\\$?[A-Za-z]{1,3}";
const PIECE = new RegExp(
  [
    '"(?:[^"]|"")*"',
    "#[A-Z/0-9]+[!?]?",
    "[A-Za-z_][A-Za-z0-9_.]*\\(",
    `(?<cell>${CELL})(?:\\s*:\\s*(?<cellEnd>${CELL}))?(?![A-Za-z0-9_(.$])`,
    `(?<column>${COLUMN})\\s*:\\s*(?<columnEnd>${COLUMN})(?![A-Za-z0-9_(.$])`,
    "[A-Za-z0-9_.]+",
  ].join("|"),
  "g",
);

/** The formula with each reference as `change` makes it; the same object leaves its text alone, none is `#REF!`. */
export function rewrite(raw: string, change: (reference: Reference) => Reference | undefined): string {
  if (!raw.startsWith("=")) return raw;
  return raw.replace(PIECE, (whole: string, ...rest: unknown[]) => {
    const groups = rest.at(-1) as Record<string, string | undefined>;
    const first = groups["cell"] ?? groups["column"];
    if (first === undefined) return whole;
    const second = groups["cellEnd"] ?? groups["columnEnd"];
    const [start, end] = [corner(first), second === undefined ? undefined : corner(second)];
    if (!inside(start) || (end && !inside(end))) return whole;
    const reference: Reference = { start, end };
    const changed = change(reference);
    if (changed === reference) return whole;
    if (!changed || !inside(changed.start) || (changed.end && !inside(changed.end))) return "#REF!";
    return changed.end ? `${written(changed.start)}:${written(changed.end)}` : written(changed.start);
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
