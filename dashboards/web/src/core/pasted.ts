// A pasted text that is a CSV: other spreadsheets and files give tabs, an editor or a web page gives commas. Lines of text have
// commas too, so what may be either stays as it is.

import { readCsv } from "./csv";

/** What numbers are written with: their commas may be in them. */
const NUMBER = /^[-+\d.,;\s%]*$/;

/** The rows of a text that is a CSV; nothing where it may as well be lines of text. */
export function pastedCsv(text: string): string[][] | undefined {
  if (text.includes("\t") || !/[,;]/.test(text)) return undefined;
  const rows = tried(text)?.filter((row) => row.length > 1 || row[0] !== "");
  const columns = rows?.[0]?.length ?? 0;
  if (!rows || rows.length < 2 || columns < 2 || rows.some((row) => row.length !== columns)) return undefined;
  // A sentence has a space behind its comma.
  if (rows.some((row) => row.some((cell) => cell.startsWith(" ")))) return undefined;
  return rows.every((row) => row.every((cell) => NUMBER.test(cell))) ? undefined : rows;
}

function tried(text: string): string[][] | undefined {
  try {
    return readCsv(text);
  } catch {
    return undefined;
  }
}
