// From a formula's AI function and the values of its arguments to calls of `/v1/cells`, one per cell of the
// answer. What a range means is decided here:
//  - over the argument that a function runs over (`text`, `prompt`, `input`) a range is one call a cell, and
//    the answers spill in the range's shape; a blank cell of it stays blank and asks nothing;
//  - `labels`, `tags` and `examples` take a range as the list that it is;
//  - `context` takes a range as one table, rows on lines;
//  - any other argument takes one cell, or a range of the same shape, read pair by pair.

import type { AiFunction, Argument } from "./catalogue";
import type { CellDetails } from "./details";
import { CellError, type Matrix, PENDING, type Scalar, type Value, isMatrix, shown } from "./value";
import { words } from "./words";

/** What JSON carries of a cell. */
export type JsonCell = string | number | boolean | null;

/** A call as the server takes it. */
export interface Call {
  function: string;
  args: (JsonCell | JsonCell[][])[];
  /** The model that answers; without, the server's default one. All calls of a request have the same. */
  model?: string;
}

/** What a request says of its calls: the model that they have in common, and each without it. */
export function requestOf<C extends Call>(calls: readonly C[]): { model?: string; calls: Omit<C, "model">[] } {
  const model = calls[0]?.model;
  return { ...(model === undefined ? {} : { model }), calls: calls.map(({ model: _model, ...call }) => call) };
}

/** What came back for a call, and how the server came to it, where it was asked. */
export type Answer = { details?: CellDetails } & (
  | { value: string | number | string[]; error?: undefined }
  | { error: CellError; value?: undefined }
);

/** Calls that are equal have equal keys; identical cells are asked once. */
export function keyOf({ function: name, args, model }: Call): string {
  return JSON.stringify(model === undefined ? [name, args] : [name, args, model]);
}

/** One cell of a function's answer: to be asked, or known without asking. */
export type Item = { call: Call } | { known: Scalar };

/** What a formula's AI function asks, in the shape of its answer. */
export interface Plan {
  rows: Item[][];
  /** Whether the answer is a range, which spills. */
  isRange: boolean;
}

/** Plans a function over the values of its arguments; `undefined` is an argument that was left out. `model`: who is asked. */
export function plan(item: AiFunction, values: (Value | undefined)[], model?: string): Plan {
  const name = `AI.${item.name.toUpperCase()}`;
  const whole = (known: Scalar): Plan => ({ rows: [[{ known }]], isRange: false });
  if (values.length > item.arguments.length) {
    return whole(new CellError("#VALUE!", words.tooMany(name, item.arguments.length, values.length)));
  }
  const missing = item.arguments.find((argument, i) => !argument.optional && values[i] === undefined);
  if (missing) return whole(new CellError("#VALUE!", words.missing(name, missing.name)));
  const of = (asked: Item): Item => (model !== undefined && "call" in asked ? { call: { ...asked.call, model } } : asked);
  const over = values[item.over] ?? null;
  if (!isMatrix(over)) return { rows: [[of(one(item, values, over, 0, 0, undefined))]], isRange: false };
  const rows = over.map((row, y) => row.map((value, x) => of(one(item, values, value, y, x, over))));
  return { rows, isRange: over.length > 1 || (over[0]?.length ?? 0) > 1 };
}

/** The call of one cell. */
function one(
  item: AiFunction, values: (Value | undefined)[], own: Scalar, y: number, x: number, over: Matrix | undefined,
): Item {
  // A blank cell is no question: people select a bit more than they filled.
  if (own === null || (typeof own === "string" && own.trim() === "")) return { known: null };
  const args: Call["args"] = [];
  for (const [i, argument] of item.arguments.entries()) {
    const read = i === item.over ? own : readArgument(item, argument, values[i], y, x, over);
    if (read instanceof CellError || read === PENDING) return { known: read };
    args.push(read);
  }
  while (args.length > 0 && args[args.length - 1] === null) args.pop();
  return { call: { function: item.name, args } };
}

function readArgument(
  item: AiFunction, argument: Argument, value: Value | undefined, y: number, x: number, over: Matrix | undefined,
): JsonCell | JsonCell[][] | CellError | typeof PENDING {
  if (value === undefined) return null;
  if (!isMatrix(value)) return value;
  const unusable = value.flat().find((cell) => cell instanceof CellError || cell === PENDING);
  if (argument.kind === "list" || argument.kind === "pairs") {
    if (unusable instanceof CellError || unusable === PENDING) return unusable;
    const rows = value as JsonCell[][];
    return rows.filter((row) => row.some((cell) => cell !== null && String(cell).trim() !== ""));
  }
  if (argument.name === "context") {
    if (unusable instanceof CellError || unusable === PENDING) return unusable;
    return table(value);
  }
  if (value.length === 1 && value[0]?.length === 1) return value[0][0] ?? null;
  if (over && value.length === over.length && value[0]?.length === over[0]?.length) return value[y]?.[x] ?? null;
  return new CellError("#VALUE!", words.shape(`AI.${item.name.toUpperCase()}`, argument.name));
}

/** A range as text: a line a row, without blank rows, cells parted by bars. */
function table(rows: Matrix): string {
  const lines = rows.map((row) => row.map(shown));
  return lines.filter((line) => line.some((cell) => cell.trim() !== "")).map((line) => line.join(" | ")).join("\n");
}

/** An answer as it stands in a cell, or several cells (`list`), which spill down. */
export function answered(answer: Answer): Value {
  if (answer.error) return answer.error;
  return Array.isArray(answer.value) ? answer.value.map((line) => [line]) : answer.value;
}
