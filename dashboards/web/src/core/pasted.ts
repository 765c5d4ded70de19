// A pasted text that is a CSV: other spreadsheets and files give tabs, an editor or a web page gives commas. Lines of text have
// commas too, so what may be either stays as it is.

import { readCsv } from "./csv";

/** What numbers are written with: their commas may be in them. */
const NUMBER = /^[-+\d.,;\s%]*$/;

/** A value that a column of prose has none of: a number with its unit, a date, a time. */
const DATUM = /^[-+$€£]?\s?\d[\d.,:/\s-]*(%|[$€£]|\p{L}{1,3})?$/u;
/** Words of the longest head of a column, and of the longest name. */
const NAME_WORDS_MAX = 4;

/** The rows of a text that is a CSV; nothing where it may as well be lines of text. */
export function pastedCsv(text: string): string[][] | undefined {
  if (text.includes("\t") || !/[,;]/.test(text)) return undefined;
  const rows = table(text);
  // A sentence has a space behind its comma; so has a table that somebody typed, whose quotes then open no cell as they stand.
  if (!rows || rows.some((row) => row.some((cell) => cell.startsWith(" ")))) return spaced(text);
  return rows.every((row) => row.every((cell) => NUMBER.test(cell))) ? undefined : rows;
}

/** The rows of a text with as many columns in each, two at least. */
function table(text: string): string[][] | undefined {
  const rows = tried(text)?.filter((row) => row.length > 1 || row[0] !== "");
  const columns = rows?.[0]?.length ?? 0;
  return rows && rows.length > 1 && columns > 1 && rows.every((row) => row.length === columns) ? rows : undefined;
}

/** The rows of a text with spaces behind its separators, where its shape is plainly a table's. */
function spaced(text: string): string[][] | undefined {
  // Those in quoted cells stay.
  const rows = table(text.replace(/"(?:[^"]|"")*"|([,;])[ \u00a0]+/g, (found, separator?: string) => separator ?? found))
    ?.map((row) => row.map((cell) => cell.trim()));
  return rows && (rows[0]?.length ?? 0) > 2 && isPlainly(rows) ? rows : undefined;
}

/** Whether rows have a head and columns under it: one of data, or in all of them names and single words. */
function isPlainly([head = [], ...rest]: string[][]): boolean {
  const isHead = head.every((cell) => cell !== "" && !isSentence(cell)) && new Set(head).size === head.length;
  const hasData = head.some((_, x) => rest.every((row) => DATUM.test(row[x] ?? "")));
  if (hasData) return isHead;
  // Without a column of data the parts of sentences look much the same, but have words that begin with small letters.
  const isName = (cell: string) => !/(^|\s)\p{Ll}/u.test(cell) && !isSentence(cell);
  return isHead && rest.every((row) => row.every(isName));
}

/** Whether a cell reads as (the end of) a sentence, or is longer than a name. */
function isSentence(cell: string): boolean {
  return /[.!?…]["”’)]?$/.test(cell) || cell.split(/\s+/).length > NAME_WORDS_MAX;
}

function tried(text: string): string[][] | undefined {
  try {
    return readCsv(text);
  } catch {
    return undefined;
  }
}
