// CSV as RFC 4180 has it, read and written by Papa Parse: quotes around what needs them, doubled inside; any
// line end is read, CRLF is written.

import Papa from "papaparse";

import { t } from "../text";

/** The rows of a CSV text. Throws where a quote is never closed: all that follows it would be one cell. */
export function readCsv(source: string): string[][] {
  const text = source.replace(/^\uFEFF/, "");
  const delimiter = separatorOf(text);
  const read = (lines: string) => Papa.parse<string[]>(lines, { delimiter, newline: "\n" });
  let lines = withLineFeeds(text, delimiter);
  let { data, errors } = read(lines);
  if (errors.some(({ code }) => code === "InvalidQuotes")) {
    lines = closedAtEnd(lines, delimiter);
    ({ data, errors } = read(lines));
  }
  const open = errors.find(({ code }) => code === "MissingQuotes");
  if (open) {
    const line = lines.slice(0, open.index).split(/\r\n|\r|\n/).length;
    throw new Error(t.failure.openQuote(line));
  }
  // The last line end ends a row and begins none.
  if (lines.endsWith("\n")) data.pop();
  return data;
}

/**
 * The one of `,`, `;` and tab that the first line has most of. Papa Parse would look at ten lines, and take the
 * semicolons of a column of sentences for separators.
 */
function separatorOf(text: string): string {
  const line = text.slice(0, text.search(/[\r\n]|$/)).replace(/"[^"]*"/g, "");
  const count = (letter: string) => line.split(letter).length;
  return [",", ";", "\t"].reduce((best, letter) => (count(letter) > count(best) ? letter : best));
}

/** The text with one kind of line end outside of quoted cells: Papa Parse knows one kind in a file. */
function withLineFeeds(text: string, separator: string): string {
  if (!text.includes("\r")) return text;
  const quotedOrEnd = new RegExp(`(?<=^|[${separator}\\r\\n])"[^"]*(?:""[^"]*)*"|\\r\\n?`, "g");
  return text.replace(quotedOrEnd, (found) => (found.startsWith('"') ? found : "\n"));
}

/** The text with quotes that close in the middle of a cell (`"Great" film`) closed at the cell's end. */
function closedAtEnd(text: string, separator: string): string {
  const quoted = new RegExp(`(?<=^|[${separator}\\n])("[^"]*(?:""[^"]*)*)"([^${separator}\\n]*)`, "g");
  return text.replace(quoted, (_, cell: string, rest: string) => `${cell}${rest.replaceAll('"', '""')}"`);
}

/** Rows as CSV. */
export function writeCsv(rows: readonly (readonly string[])[]): string {
  return rows.length > 0 ? `${Papa.unparse(rows as string[][], { newline: "\r\n" })}\r\n` : "";
}

/**
 * A text as it leaves in a CSV. Other programs run what starts like a formula, and a model's answer or somebody's
 * cell may: an apostrophe keeps it text there, and is taken off when it is read here.
 */
export function harmless(text: string): string {
  return /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
}
