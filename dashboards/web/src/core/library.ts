// Calls into the library of ordinary functions: what it is given of cells, and what becomes of its results.

import { CellError, type Matrix, PENDING, type Scalar, type Value, isMatrix } from "relserve-client/value";

import { explained } from "./errors";
import { single } from "./operators";
import { bounded } from "./typed";

/** A function of the library. */
export type Known = (...args: never[]) => unknown;

/** Calls a function of the library over values, and gives its result or error as a value. */
export function apply(known: Known, values: Value[], countsErrors: boolean): Value {
  const facts = values.map((value) => (isMatrix(value) ? factsOf(value) : factsOf([[value]])));
  const error = countsErrors ? undefined : facts.find((fact) => fact.error)?.error;
  if (error) return error;
  // No half truths: what is computed out of unfinished cells is unfinished.
  if (facts.some((fact) => fact.isPending)) return PENDING;
  const given = facts.map(({ plain }, i) => (isMatrix(values[i] ?? null) ? plain : plain[0]?.[0]));
  try {
    return returned((known as (...args: unknown[]) => unknown)(...given));
  } catch {
    // Its words are about its own code.
    return explained("#VALUE!");
  }
}

/** What an argument holds. */
export interface Facts {
  error: CellError | undefined;
  isPending: boolean;
  /** As formulajs takes it. */
  plain: readonly (readonly unknown[])[];
}

/** Of a range that many formulas read, found out once. */
const FACTS = new WeakMap<Matrix, Facts>();

/** What a range holds. */
export function factsOf(matrix: Matrix): Facts {
  const known = FACTS.get(matrix);
  if (known) return known;
  let error: CellError | undefined;
  let isPending = false;
  for (const row of matrix) {
    for (const value of row) {
      if (value instanceof CellError) error ??= value;
      else if (value === PENDING) isPending = true;
    }
  }
  const plain = (value: Scalar) => (value instanceof CellError ? new Error(value.code) : value);
  const facts = { error, isPending, plain: error ? matrix.map((row) => row.map(plain)) : matrix };
  FACTS.set(matrix, facts);
  return facts;
}

/** What the library gave, as a value. */
export function returned(value: unknown): Value {
  if (value instanceof Error) return explained(value.message);
  if (Array.isArray(value)) {
    return value.map((row) => (Array.isArray(row) ? row : [row]).map((cell) => single(returned(cell))));
  }
  if (typeof value === "number") return Number.isFinite(value) ? value : explained("#NUM!");
  if (typeof value === "string") return bounded(value);
  return typeof value === "boolean" ? value : null;
}
