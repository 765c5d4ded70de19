// The value of an expression. Pure: cells and AI functions are asked of the `Context`.

import { CATALOGUE, type AiFunction } from "relserve-client/catalogue";
import { CellError, type ErrorCode, type Matrix, PENDING, type Scalar, type Value, isMatrix, shown } from "relserve-client/value";

import type { Area } from "./address";
import { chosen, count, criterion } from "./criteria";
import { COUNTING, ORDINARY } from "./functions";
import { OVER_NUMBERS } from "./numeric";
import type { Node } from "./parse";
import { type Numbers, numbersOf } from "./ranges";
import { bounded } from "./typed";

/** What an expression reads. */
export interface Context {
  /** The values of an area; they belong to all formulas. */
  area(area: Area): Matrix;
  /** The numbers of an area. */
  numbers(area: Area): Numbers;
  /** An AI function over its arguments; `undefined` is one left out. */
  ai(item: AiFunction, args: (Value | undefined)[]): Value;
}

/** The value of an expression. */
export function evaluate(node: Node, context: Context): Value {
  switch (node.kind) {
    case "number":
    case "text":
    case "boolean":
      return node.value;
    case "error":
      return new CellError(node.code, node.note);
    case "missing":
      return null;
    case "area": {
      const rows = context.area(node.area);
      return node.isCell ? (rows[0]?.[0] ?? null) : rows;
    }
    case "array":
      return node.rows.map((row) => row.map((item) => single(evaluate(item, context))));
    case "unary":
      return lift(evaluate(node.operand, context), (value) => unary(node.operator, value));
    case "binary":
      return pairwise(evaluate(node.left, context), evaluate(node.right, context), (left, right) =>
        binary(node.operator, left, right),
      );
    case "call":
      return call(node.name, node.args, context);
  }
}

function single(value: Value): Scalar {
  return isMatrix(value) ? (value[0]?.[0] ?? null) : value;
}

function lift(value: Value, apply: (value: Scalar) => Scalar): Value {
  return isMatrix(value) ? value.map((row) => row.map(apply)) : apply(value);
}

/** Two operands; one cell meets every cell of a range, and a row or a column meets every row or column. */
function pairwise(left: Value, right: Value, apply: (left: Scalar, right: Scalar) => Scalar): Value {
  if (!isMatrix(left) && !isMatrix(right)) return apply(left, right);
  const a: Matrix = isMatrix(left) ? left : [[left]];
  const b: Matrix = isMatrix(right) ? right : [[right]];
  const rows = Math.max(a.length, b.length);
  const columns = Math.max(a[0]?.length ?? 0, b[0]?.length ?? 0);
  const at = (matrix: Matrix, y: number, x: number): Scalar => {
    const row = matrix.length === 1 ? matrix[0] : matrix[y];
    const value = row?.length === 1 ? row[0] : row?.[x];
    return value === undefined ? new CellError("#N/A", "the ranges have different sizes") : value;
  };
  return Array.from({ length: rows }, (_, y) =>
    Array.from({ length: columns }, (_, x) => apply(at(a, y, x), at(b, y, x))),
  );
}

function number(value: Scalar): number | CellError {
  if (value === null) return 0;
  if (typeof value === "boolean") return value ? 1 : 0;
  const read = typeof value === "number" ? value : Number(String(value).trim() || Number.NaN);
  return Number.isNaN(read) ? new CellError("#VALUE!", `\`${shown(value)}\` is no number`) : read;
}

function unary(operator: string, value: Scalar): Scalar {
  if (value === PENDING || value instanceof CellError) return value;
  const read = number(value);
  if (read instanceof CellError) return read;
  return operator === "-" ? -read : operator === "%" ? read / 100 : read;
}

function binary(operator: string, left: Scalar, right: Scalar): Scalar {
  if (left instanceof CellError) return left;
  if (right instanceof CellError) return right;
  if (left === PENDING || right === PENDING) return PENDING;
  if (operator === "&") return bounded(shown(left) + shown(right));
  if ("=<>".includes(operator[0] ?? "")) return compare(operator, left, right);
  const [a, b] = [number(left), number(right)];
  if (a instanceof CellError) return a;
  if (b instanceof CellError) return b;
  if (operator === "/" && b === 0) return new CellError("#DIV/0!", "a division by zero");
  const result =
    operator === "+" ? a + b : operator === "-" ? a - b : operator === "*" ? a * b : operator === "/" ? a / b : a ** b;
  return Number.isFinite(result) ? result : told("#NUM!");
}

/** Numbers stand before texts, texts before truth values; texts are compared without case, as in Excel. */
function compare(operator: string, left: Scalar, right: Scalar): boolean {
  const rank = (value: Scalar) => (typeof value === "number" ? 0 : typeof value === "string" ? 1 : 2);
  // A blank cell is nought beside a number and empty beside a text.
  const fill = (value: Scalar, other: Scalar): Scalar =>
    value !== null ? value : typeof other === "number" ? 0 : typeof other === "boolean" ? false : "";
  const a: Scalar = fill(left, right);
  const b: Scalar = fill(right, left);
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

function truth(value: Scalar): boolean | CellError {
  if (value === null) return false;
  if (typeof value === "string") {
    if (/^true$/i.test(value)) return true;
    if (/^false$/i.test(value)) return false;
    return new CellError("#VALUE!", `\`${value}\` is neither true nor false`);
  }
  return Boolean(value);
}

function call(name: string, args: Node[], context: Context): Value {
  const item = CATALOGUE.get(name);
  if (item) return context.ai(item, args.map((arg) => (arg.kind === "missing" ? undefined : evaluate(arg, context))));
  const special = SPECIAL[name];
  if (special) return special(args, context);
  const numeric = OVER_NUMBERS[name];
  if (numeric) return overNumbers(name, args, context);
  const known = COUNTING[name] ?? ORDINARY[name];
  if (!known) {
    const help = name.startsWith("AI.") ? `; there are ${[...CATALOGUE.keys()].join(", ")}` : "";
    return new CellError("#NAME?", `there is no function \`${name}\`${help}`);
  }
  return apply(known, args.map((arg) => evaluate(arg, context)), COUNTING[name] !== undefined);
}

type Known = (...args: never[]) => unknown;

function apply(known: Known, values: Value[], countsErrors: boolean): Value {
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
    return told("#VALUE!");
  }
}

/** What an argument holds. */
interface Facts {
  error: CellError | undefined;
  isPending: boolean;
  /** As formulajs takes it. */
  plain: readonly (readonly unknown[])[];
}

/** Of a range that many formulas read, found out once. */
const FACTS = new WeakMap<Matrix, Facts>();

function factsOf(matrix: Matrix): Facts {
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

/** What a library's error means, which has no words of its own. */
const MEANINGS: Partial<Record<ErrorCode, string>> = {
  "#N/A": "nothing like it was found",
  "#VALUE!": "the function does not take such an argument",
  "#REF!": "that place is outside of the range",
  "#NAME?": "the function does not know such a name",
  "#DIV/0!": "a division by zero",
  "#NUM!": "there is no such number, or it is too large",
  "#NULL!": "the ranges have no cell in common",
};

function told(code: string): CellError {
  const known = (code in MEANINGS ? code : "#VALUE!") as ErrorCode;
  return new CellError(known, MEANINGS[known]);
}

function returned(value: unknown): Value {
  if (value instanceof Error) return told(value.message);
  if (Array.isArray(value)) {
    return value.map((row) => (Array.isArray(row) ? row : [row]).map((cell) => single(returned(cell))));
  }
  if (typeof value === "number") return Number.isFinite(value) ? value : told("#NUM!");
  if (typeof value === "string") return bounded(value);
  return typeof value === "boolean" ? value : null;
}

const NO_NUMBER: Record<string, Scalar> = {
  SUM: 0, PRODUCT: 0, MIN: 0, MAX: 0,
  AVERAGE: new CellError("#DIV/0!", "there is no number"), STDEV: new CellError("#DIV/0!", "there is no number"),
  VAR: new CellError("#DIV/0!", "there is no number"),
};

/** `LARGE` and `SMALL` have a place behind their range; the others take any number of ranges and values. */
function overNumbers(name: string, args: Node[], context: Context): Value {
  const hasPlace = name === "LARGE" || name === "SMALL";
  const place = hasPlace && args[1] ? asNumber(single(evaluate(args[1], context))) : 1;
  const ranges = hasPlace ? args.slice(0, 1) : args;
  const all = ranges.map((arg) => numbersIn(arg, context));
  const error = all.find((one) => one.error)?.error;
  if (error) return error;
  if (place instanceof CellError) return place;
  if (place === PENDING || all.some((one) => one.isPending)) return PENDING;
  const [first] = all;
  const numbers = all.length === 1 && first ? first : numbersOf(all.flatMap(({ list }) => list as number[]));
  if (numbers.list.length === 0) return NO_NUMBER[name] ?? new CellError("#NUM!", "there is no number");
  const key = `${name} ${place}`;
  const result = numbers.results.get(key) ?? OVER_NUMBERS[name]?.(numbers.list, place) ?? 0;
  numbers.results.set(key, result);
  return typeof result === "string" ? told(result) : returned(result);
}

/** What a range holds beside numbers is left out, as in every spreadsheet: `5 stars` is not 5. */
function numbersIn(arg: Node, context: Context): Numbers {
  // A cell is a range of one: a text in it is left out too.
  if (arg.kind === "area") return context.numbers(arg.area);
  const value = evaluate(arg, context);
  if (isMatrix(value)) return numbersOf(value.flat());
  return numbersOf(value === null ? [] : [asNumber(value)]);
}

function asNumber(value: Scalar): number | CellError | typeof PENDING {
  return value === PENDING || value instanceof CellError ? value : number(value);
}

/** `COUNTIF`, `SUMIF` and `AVERAGEIF`: a range, what is looked for in it, and what to take instead of what is found. */
const conditional = (name: "COUNTIF" | "SUMIF" | "AVERAGEIF") => (args: Node[], context: Context): Value => {
  if (args.length < 2 || args.length > (name === "COUNTIF" ? 2 : 3)) {
    return new CellError("#N/A", `${name} takes a range and a criterion${name === "COUNTIF" ? "" : ", and may take a range to add up"}`);
  }
  const [range = [], values = []] = [args[0], args[2] ?? args[0]].map((arg) => asMatrix(arg ? evaluate(arg, context) : null));
  if (factsOf(range).isPending || factsOf(values).isPending) return PENDING;
  return lift(evaluate(args[1] as Node, context), (sought) => {
    if (sought === PENDING || sought instanceof CellError) return sought;
    const test = criterion(sought);
    if (name === "COUNTIF") return count(range, test);
    const { list, error } = numbersOf(chosen(range, test, values));
    if (error) return error;
    if (list.length === 0) return name === "SUMIF" ? 0 : new CellError("#DIV/0!", "there is no number");
    return returned(OVER_NUMBERS[name === "SUMIF" ? "SUM" : "AVERAGE"]?.(list, 1)) as Scalar;
  });
};

function asMatrix(value: Value): Matrix {
  return isMatrix(value) ? value : [[value]];
}

/** Products by place: what is no number is nought. */
function sumProduct(args: Node[], context: Context): Value {
  const noughts = (cell: Scalar) => (typeof cell === "string" || typeof cell === "boolean" || cell === null ? 0 : cell);
  return apply(ORDINARY["SUMPRODUCT"] as Known, args.map((arg) => lift(evaluate(arg, context), noughts)), false);
}

/** Functions that evaluate what they need only, or that must see errors. */
const SPECIAL: Record<string, (args: Node[], context: Context) => Value> = {
  IF: ([condition, then, otherwise], context) => {
    const tested = condition ? single(evaluate(condition, context)) : null;
    if (tested === PENDING || tested instanceof CellError) return tested;
    const chosen = truth(tested);
    if (chosen instanceof CellError) return chosen;
    const branch = chosen ? then : otherwise;
    return branch ? evaluate(branch, context) : chosen;
  },
  IFERROR: ([value, otherwise], context) => instead(value, otherwise, context, () => true),
  IFNA: ([value, otherwise], context) => instead(value, otherwise, context, (error) => error.code === "#N/A"),
  ISERROR: ([value], context) => about(value, context, (read) => read instanceof CellError),
  ISNA: ([value], context) => about(value, context, (read) => read instanceof CellError && read.code === "#N/A"),
  ISBLANK: ([value], context) => about(value, context, (read) => read === null),
  ISNUMBER: ([value], context) => about(value, context, (read) => typeof read === "number"),
  ISTEXT: ([value], context) => about(value, context, (read) => typeof read === "string"),
  NA: () => new CellError("#N/A"),
  PI: () => Math.PI,
  SUMPRODUCT: sumProduct,
  COUNTIF: conditional("COUNTIF"),
  SUMIF: conditional("SUMIF"),
  AVERAGEIF: conditional("AVERAGEIF"),
  CONCAT: (args, context) => joined(args, context),
  CONCATENATE: (args, context) => joined(args, context),
};

function instead(
  value: Node | undefined, otherwise: Node | undefined, context: Context, catches: (error: CellError) => boolean,
): Value {
  const read = value ? evaluate(value, context) : null;
  return lift(read, (cell) => {
    if (!(cell instanceof CellError) || !catches(cell)) return cell;
    return otherwise ? single(evaluate(otherwise, context)) : null;
  });
}

function about(value: Node | undefined, context: Context, test: (value: Scalar) => boolean): Value {
  return lift(value ? evaluate(value, context) : null, (cell) => (cell === PENDING ? PENDING : test(cell)));
}

function joined(args: Node[], context: Context): Value {
  const cells = args.flatMap((arg): Scalar[] => {
    const value = evaluate(arg, context);
    return isMatrix(value) ? value.flat() : [value];
  });
  return cells.reduce<Scalar>((text, cell) => binary("&", text, cell), "");
}
