// Operators on the values of cells and ranges, and what a cell is worth as a number or as a condition. They read
// no cell.

import {
  CellError, type Matrix, PENDING, type Scalar, type Value, isMatrix, shown,
} from "relserve-client/value";

import { t } from "../text";
import { serialOf } from "./dates";
import { explained } from "./errors";
import { bounded } from "./typed";

/** The first cell of a range; a cell itself. */
export function single(value: Value): Scalar {
  return isMatrix(value) ? (value[0]?.[0] ?? null) : value;
}

/** A function of one cell over a cell or each of a range. */
export function lift(value: Value, apply: (value: Scalar) => Scalar): Value {
  return isMatrix(value) ? value.map((row) => row.map(apply)) : apply(value);
}

/** Two operands; one cell meets every cell of a range, and a row or a column meets every row or column. */
export function pairwise(left: Value, right: Value, apply: (left: Scalar, right: Scalar) => Scalar): Value {
  if (!isMatrix(left) && !isMatrix(right)) return apply(left, right);
  const a: Matrix = isMatrix(left) ? left : [[left]];
  const b: Matrix = isMatrix(right) ? right : [[right]];
  const rows = Math.max(a.length, b.length);
  const columns = Math.max(a[0]?.length ?? 0, b[0]?.length ?? 0);
  const at = (matrix: Matrix, y: number, x: number): Scalar => {
    const row = matrix.length === 1 ? matrix[0] : matrix[y];
    const value = row?.length === 1 ? row[0] : row?.[x];
    return value === undefined ? new CellError("#N/A", t.cell.sizes) : value;
  };
  return Array.from({ length: rows }, (_, y) =>
    Array.from({ length: columns }, (_, x) => apply(at(a, y, x), at(b, y, x))),
  );
}

function toNumber(value: Scalar): number | CellError {
  if (value === null) return 0;
  if (typeof value === "boolean") return value ? 1 : 0;
  const read = typeof value === "number" ? value : (serialOf(String(value)) ?? Number(String(value).trim() || Number.NaN));
  return Number.isNaN(read) ? new CellError("#VALUE!", t.cell.notNumber(shown(value))) : read;
}

/** A sign or `%`. */
export function unary(operator: string, value: Scalar): Scalar {
  if (value === PENDING || value instanceof CellError) return value;
  const read = toNumber(value);
  if (read instanceof CellError) return read;
  return operator === "-" ? -read : operator === "%" ? read / 100 : read;
}

const ARITHMETIC: Record<string, (a: number, b: number) => number> = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "^": (a, b) => a ** b,
};

/** An operator between two cells. */
export function binary(operator: string, left: Scalar, right: Scalar): Scalar {
  if (left instanceof CellError) return left;
  if (right instanceof CellError) return right;
  if (left === PENDING || right === PENDING) return PENDING;
  if (operator === "&") return bounded(shown(left) + shown(right));
  if ("=<>".includes(operator[0] ?? "")) return compare(operator, left, right);
  const [a, b] = [toNumber(left), toNumber(right)];
  if (a instanceof CellError) return a;
  if (b instanceof CellError) return b;
  if (operator === "/" && b === 0) return new CellError("#DIV/0!", t.cell.meanings["#DIV/0!"]);
  const result = ARITHMETIC[operator]?.(a, b) ?? Number.NaN;
  return Number.isFinite(result) ? result : explained("#NUM!");
}

/** Numbers stand before texts, texts before truth values; texts are compared without case. */
function compare(operator: string, left: Scalar, right: Scalar): boolean {
  const rank = (value: Scalar) => (typeof value === "number" ? 0 : typeof value === "string" ? 1 : 2);
  // A blank cell is nought beside a number and empty beside a text.
  const fill = (value: Scalar, other: Scalar): Scalar =>
    value !== null ? value : typeof other === "number" ? 0 : typeof other === "boolean" ? false : "";
  // A date that was typed is a text, and beside a number its number.
  const dated = (value: Scalar, other: Scalar): Scalar =>
    typeof value === "string" && typeof other === "number" ? (serialOf(value) ?? value) : value;
  const a: Scalar = dated(fill(left, right), right);
  const b: Scalar = dated(fill(right, left), left);
  let order = rank(a) - rank(b);
  if (order === 0) {
    const [x, y] = typeof a === "string" ? [a.toLowerCase(), String(b).toLowerCase()] : [Number(a), Number(b)];
    order = x < y ? -1 : x > y ? 1 : 0;
  }
  switch (operator) {
    case "=":
      return order === 0;
    case "<>":
      return order !== 0;
    case "<":
      return order < 0;
    case ">":
      return order > 0;
    case "<=":
      return order <= 0;
    default:
      return order >= 0;
  }
}

/** A cell as a condition. */
export function truth(value: Scalar): boolean | CellError {
  if (value === null) return false;
  if (typeof value === "string") {
    if (/^true$/i.test(value)) return true;
    if (/^false$/i.test(value)) return false;
    return new CellError("#VALUE!", t.cell.notTruth(value));
  }
  return Boolean(value);
}

/** A value as a number, unless it has none yet or is an error. */
export function asNumber(value: Scalar): number | CellError | typeof PENDING {
  return value === PENDING || value instanceof CellError ? value : toNumber(value);
}

/** A range; a cell is one of one. */
export function asMatrix(value: Value): Matrix {
  return isMatrix(value) ? value : [[value]];
}
