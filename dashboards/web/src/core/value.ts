// What a cell can be worth, and how it is shown.

/** The errors that a sheet shows. */
export type ErrorCode =
  | "#N/A" | "#VALUE!" | "#REF!" | "#NAME?" | "#DIV/0!" | "#NUM!" | "#NULL!" | "#SPILL!" | "#ERROR!";

/** An error in a cell, with the words that explain it (often the server's own). */
export class CellError {
  constructor(readonly code: ErrorCode, readonly note = "") {}
}

/** The value of a cell whose answer is under way. */
export const PENDING: unique symbol = Symbol("pending");

/** One cell's value. */
export type Scalar = number | string | boolean | null | CellError | typeof PENDING;

/** Rows of values: what a range is worth, and what spills. */
export type Matrix = Scalar[][];

/** What an expression is worth. */
export type Value = Scalar | Matrix;

/** Whether a value is rows of values. */
export function isMatrix(value: Value): value is Matrix {
  return Array.isArray(value);
}

/** The mark of a cell that waits. */
export const PENDING_TEXT = "…";

/** Digits of a number that are kept. */
const DIGITS = 15;

/** Most characters of a text that a formula makes, as in Excel. */
export const TEXT_MAX = 32_767;

/** A text that a formula made, where it is not too long. */
export function bounded(text: string): string | CellError {
  return text.length <= TEXT_MAX ? text : new CellError("#VALUE!", `a formula's text has ${TEXT_MAX} characters at most`);
}

/** A value as the grid shows it. */
export function shown(value: Scalar): string {
  if (value === null) return "";
  if (value === PENDING) return PENDING_TEXT;
  if (value instanceof CellError) return value.code;
  if (typeof value === "boolean") return value ? "TRUE" : "FALSE";
  // As many digits as every spreadsheet keeps: 0.1 + 0.2 is 0.3, and a number of 13 digits is itself.
  if (typeof value === "number") return String(Number(value.toPrecision(DIGITS)));
  return value;
}

/** What somebody typed, as a value: a number where it is one, else the text as it is. */
export function typed(raw: string): Scalar {
  if (raw === "") return null;
  const text = raw.trim();
  // Codes and long identifiers are not numbers: they would lose digits.
  if (/^[+-]?(0\d+|\d{16,})$/.test(text)) return raw;
  if (/^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text)) {
    const number = Number(text);
    return Number.isFinite(number) ? number : raw;
  }
  if (/^[+-]?(\d+(\.\d*)?|\.\d+)%$/.test(text)) return Number(text.slice(0, -1)) / 100;
  if (/^true$/i.test(text)) return true;
  if (/^false$/i.test(text)) return false;
  // A leading apostrophe keeps text that would be something else, as in every spreadsheet.
  return raw.startsWith("'") ? raw.slice(1) : raw;
}

/** Whether what somebody typed is a formula. */
export function isFormula(raw: string): boolean {
  return raw.startsWith("=") && raw.length > 1;
}

/** Whether it is one that asks the model. */
export function asksModel(raw: string): boolean {
  return isFormula(raw) && /\bAI\.[A-Z]/i.test(raw);
}
