// What a cell can be worth, and how it is shown.

/** The errors that a sheet shows. */
export type ErrorCode =
  | "#N/A" | "#VALUE!" | "#REF!" | "#NAME?" | "#DIV/0!" | "#NUM!" | "#NULL!" | "#SPILL!" | "#ERROR!" | "#STOPPED!";

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
