// Values between Excel and the engine.

import { CellError, type Matrix, PENDING, type Scalar, type Value, isMatrix } from "relserve-client/value";

import { scalar } from "../../shared/plan";

/** An argument as Excel gives it: a range always, of one cell where it is one; nothing where it is left out. */
export type Given = unknown[][] | null | undefined;

/** An argument as a value. */
export function valueFrom(given: Given): Value | undefined {
  if (given === null || given === undefined) return undefined;
  const rows = given.map((row) => row.map(cellFrom));
  return rows.length === 1 && rows[0]?.length === 1 ? rows[0][0] ?? null : rows;
}

/** Whether an argument is there and not blank all over. */
export function isGiven(given: Given): given is unknown[][] {
  return Boolean(given?.some((row) => row.some((cell) => cell !== null && cell !== undefined && cell !== "")));
}

function cellFrom(cell: unknown): Scalar {
  if (cell === null || cell === undefined) return null;
  if (typeof cell === "string" || typeof cell === "number" || typeof cell === "boolean") return scalar(cell);
  // Excel's errors, and its rich values, which have no text of their own.
  return new CellError("#N/A", "an argument is an error, or waits for its answer");
}

/** A value as Excel takes it. */
export function shown(value: Value): unknown[][] {
  const rows: Matrix = isMatrix(value) ? value : [[value]];
  return rows.map((row) => row.map(cellShown));
}

function cellShown(cell: Scalar): unknown {
  if (cell === null) return "";
  if (cell === PENDING) return error(new CellError("#N/A", "waits for its answer"));
  return cell instanceof CellError ? error(cell) : cell;
}

/** Excel shows words of its own choice for these two errors only. */
function error({ code, note }: CellError): CustomFunctions.Error {
  const { invalidValue, notAvailable } = CustomFunctions.ErrorCode;
  return new CustomFunctions.Error(code === "#VALUE!" ? invalidValue : notAvailable, note);
}
