// A custom function from its arguments to what the sheet shows.

import { CellError, PENDING, type Scalar, type Value, isMatrix } from "relserve-client/value";

import { question, scalar, valueOf } from "../../shared/plan";
import { fetchAnswers } from "./fetch-answers";
import type { ScriptHost } from "./google";
import { loadForFormulas } from "./settings";

/** What a cell of a range shows while its answer is not ready. */
export const PENDING_MARK = "#PENDING!";

/** What a custom function may give back. */
export type Shown = string | number | boolean;

/**
 * Runs a function. A single answer that is not there is thrown: Sheets shows `#ERROR!` with the words in the cell's
 * note, and formulas over it are errors too. In a range only the cells concerned say so, as text, so that the others
 * keep their answers. Where nothing at all was answered for one reason, the range is one error as well.
 */
export function run(host: ScriptHost, name: string, args: unknown[], kept: unknown): Shown | Shown[][] {
  const started = host.now();
  const given = valueFrom(host, kept);
  if (given !== undefined && !isBlank(given)) return shownValue(given);
  const asked = question(name, args.map((arg) => valueFrom(host, arg)));
  const answers = asked.calls.size > 0 ? fetchAnswers(host, loadForFormulas(host.properties), asked.calls.values(), started) : new Map();
  const value = valueOf(asked, (key) => answers.get(key));
  if (isMatrix(value)) {
    const error = sameError(value);
    if (error) throw shownError(error);
  }
  return shownValue(value);
}

/** An argument as a value: `undefined` where it is left out, nothing where the cell is blank. */
function valueFrom(host: ScriptHost, raw: unknown): Value | undefined {
  if (raw === undefined) return undefined;
  if (!Array.isArray(raw)) return scalarOf(host, raw);
  const rows = raw.map((row: unknown) => (Array.isArray(row) ? row : [row]).map((cell) => scalarOf(host, cell)));
  // A range of one cell is that cell, also where the range is blank.
  const [first] = rows;
  return rows.length === 1 && first?.length === 1 ? first[0] : rows;
}

function isBlank(value: Value): boolean {
  return isMatrix(value) ? value.flat().every((cell) => cell === null) : value === null;
}

/** A cell as Sheets gives it, as a value. */
export function scalarOf(host: Pick<ScriptHost, "dateText">, raw: unknown): Scalar {
  if (raw === undefined || raw === null) return null;
  if (typeof raw === "number" || typeof raw === "boolean" || typeof raw === "string") return scalar(raw);
  // A date of another realm is no `instanceof Date` here.
  if (Object.prototype.toString.call(raw) === "[object Date]") return host.dateText(raw as Date);
  return String(raw);
}

/** The error that all asked cells of a range share; none where one cell has something else. */
function sameError(rows: Scalar[][]): CellError | undefined {
  const cells = rows.flat().filter((cell) => cell !== null);
  const [first] = cells;
  if (!(first instanceof CellError)) return undefined;
  const same = (cell: Scalar) => cell instanceof CellError && cell.code === first.code && cell.note === first.note;
  return cells.every(same) ? first : undefined;
}

function shownError({ code, note }: CellError): Error {
  return new Error(`${code} ${note}`.trim());
}

function shownValue(value: Value): Shown | Shown[][] {
  if (isMatrix(value)) return value.map((row) => row.map(shownCell));
  if (value instanceof CellError) throw shownError(value);
  if (value === PENDING) {
    throw new Error(`${PENDING_MARK} the answer is not ready; the server works on: menu RelServe > Fetch late answers`);
  }
  return value ?? "";
}

function shownCell(cell: Scalar): Shown {
  if (cell === null) return "";
  if (cell === PENDING) return PENDING_MARK;
  return cell instanceof CellError ? `${cell.code} ${cell.note}`.trim() : cell;
}
