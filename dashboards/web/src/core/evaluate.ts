// The value of an expression. Pure: cells and AI functions are asked of the `Context`.

import { CATALOGUE, type AiFunction } from "relserve-client/catalogue";
import { CellError, type Matrix, PENDING, type Scalar, type Value, isMatrix } from "relserve-client/value";

import { t } from "../text";
import type { Area } from "./address";
import { ARRAYS } from "./arrays";
import { chosen, count, criterion } from "./criteria";
import { type Clock, DATE_FUNCTIONS, callDateFunction, isDateFunction } from "./date-functions";
import { explained } from "./errors";
import { COUNTING, ORDINARY } from "./functions";
import { type Known, apply, factsOf, returned } from "./library";
import { OVER_NUMBERS } from "./numeric";
import { asMatrix, asNumber, binary, lift, pairwise, single, truth, unary } from "./operators";
import type { Node } from "./parse";
import { type Numbers, numbersOf } from "./ranges";

/** What an expression reads. */
export interface Context {
  /** The values of an area, of another sheet where one is named; they belong to all formulas. */
  area(area: Area, sheet: string | undefined): Matrix;
  /** The numbers of an area. */
  numbers(area: Area, sheet: string | undefined): Numbers;
  clock: Clock;
  /** An AI function over its arguments; `undefined` is one left out. `nodes` tell which call of the formula it is, `model` who is asked. */
  ai(item: AiFunction, args: (Value | undefined)[], nodes: readonly Node[], model?: string): Value;
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
      const rows = context.area(node.area, node.sheet);
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

function call(name: string, args: Node[], context: Context): Value {
  const item = CATALOGUE.get(name);
  if (item) return context.ai(item, args.map((arg) => (arg.kind === "missing" ? undefined : evaluate(arg, context))), args);
  const special = SPECIAL[name];
  if (special) return special(args, context);
  const numeric = OVER_NUMBERS[name];
  if (numeric) return overNumbers(name, args, context);
  const array = ARRAYS[name];
  if (array) {
    const values = args.map((arg) => (arg.kind === "missing" ? undefined : evaluate(arg, context)));
    return values.some((value) => value !== undefined && factsOf(asMatrix(value)).isPending) ? PENDING : array(values);
  }
  if (isDateFunction(name)) return callDateFunction(name, args.map((arg) => evaluate(arg, context)), context.clock);
  const known = COUNTING[name] ?? ORDINARY[name];
  if (!known) {
    const isAi = name.startsWith("AI.");
    return new CellError("#NAME?", isAi ? t.cell.noAiFunction(name, [...CATALOGUE.keys(), MODEL].join(", ")) : t.cell.noFunction(name));
  }
  return apply(known, args.map((arg) => evaluate(arg, context)), COUNTING[name] !== undefined);
}

const NO_NUMBER: Record<string, Scalar> = {
  SUM: 0, PRODUCT: 0, MIN: 0, MAX: 0,
  AVERAGE: new CellError("#DIV/0!", t.cell.noNumber), STDEV: new CellError("#DIV/0!", t.cell.noNumber),
  VAR: new CellError("#DIV/0!", t.cell.noNumber),
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
  if (numbers.list.length === 0) return NO_NUMBER[name] ?? new CellError("#NUM!", t.cell.noNumber);
  const key = `${name} ${place}`;
  const result = numbers.results.get(key) ?? OVER_NUMBERS[name]?.(numbers.list, place) ?? 0;
  numbers.results.set(key, result);
  return typeof result === "string" ? explained(result) : returned(result);
}

/** What a range holds beside numbers is left out, as in every spreadsheet: `5 stars` is not 5. */
function numbersIn(arg: Node, context: Context): Numbers {
  // A cell is a range of one: a text in it is left out too.
  if (arg.kind === "area") return context.numbers(arg.area, arg.sheet);
  const value = evaluate(arg, context);
  if (isMatrix(value)) return numbersOf(value.flat());
  return numbersOf(value === null ? [] : [asNumber(value)]);
}

/** `COUNTIF`, `SUMIF` and `AVERAGEIF`: a range, what is looked for in it, and what to take instead of what is found. */
const conditional = (name: "COUNTIF" | "SUMIF" | "AVERAGEIF") => (args: Node[], context: Context): Value => {
  if (args.length < 2 || args.length > (name === "COUNTIF" ? 2 : 3)) {
    return new CellError("#N/A", name === "COUNTIF" ? t.cell.takesCriterion(name) : t.cell.takesCriterionAndRange(name));
  }
  const [range = [], values = []] = [args[0], args[2] ?? args[0]].map((arg) => asMatrix(arg ? evaluate(arg, context) : null));
  if (factsOf(range).isPending || factsOf(values).isPending) return PENDING;
  return lift(evaluate(args[1] as Node, context), (sought) => {
    if (sought === PENDING || sought instanceof CellError) return sought;
    const test = criterion(sought);
    if (name === "COUNTIF") return count(range, test);
    const { list, error } = numbersOf(chosen(range, test, values));
    if (error) return error;
    if (list.length === 0) return name === "SUMIF" ? 0 : new CellError("#DIV/0!", t.cell.noNumber);
    return returned(OVER_NUMBERS[name === "SUMIF" ? "SUM" : "AVERAGE"]?.(list, 1)) as Scalar;
  });
};

/** Products by place: what is no number is nought. */
function sumProduct(args: Node[], context: Context): Value {
  const noughts = (cell: Scalar) => (typeof cell === "string" || typeof cell === "boolean" || cell === null ? 0 : cell);
  return apply(ORDINARY["SUMPRODUCT"] as Known, args.map((arg) => lift(evaluate(arg, context), noughts)), false);
}

/** `OVERRIDE(value, formula)`: the formula's answers with the first one typed over (`override.ts`). */
function overrideFirst([value, formula]: Node[], context: Context): Value {
  const answers = formula ? evaluate(formula, context) : null;
  const first = value ? single(evaluate(value, context)) : null;
  return isMatrix(answers) ? answers.map((row, y) => (y === 0 ? [first, ...row.slice(1)] : row)) : first;
}

/** The function that names a model. */
export const MODEL = "AI.MODEL";

/** `AI.MODEL(name, formula)`: what the formula asks, it asks the model of this name; one that is named inside of it counts more. */
function ofModel([model, formula, ...others]: Node[], context: Context): Value {
  const named = model ? single(evaluate(model, context)) : null;
  if (named === PENDING || named instanceof CellError) return named;
  const name = typeof named === "string" ? named.trim() : "";
  if (name === "" || !formula || others.length > 0) return new CellError("#VALUE!", t.cell.takesModel(MODEL));
  return evaluate(formula, { ...context, ai: (item, args, nodes, inner = name) => context.ai(item, args, nodes, inner) });
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
  IFS: (args, context) => {
    for (let i = 0; i + 1 < args.length; i += 2) {
      const tested = single(evaluate(args[i] as Node, context));
      if (tested === PENDING || tested instanceof CellError) return tested;
      const isIt = truth(tested);
      if (isIt instanceof CellError) return isIt;
      if (isIt) return evaluate(args[i + 1] as Node, context);
    }
    return new CellError("#N/A", t.cell.noCondition);
  },
  SWITCH: ([value, ...cases], context) => {
    const sought = value ? single(evaluate(value, context)) : null;
    if (sought === PENDING || sought instanceof CellError) return sought;
    for (let i = 0; i + 1 < cases.length; i += 2) {
      const is = binary("=", sought, single(evaluate(cases[i] as Node, context)));
      if (is === PENDING || is instanceof CellError) return is;
      if (is === true) return evaluate(cases[i + 1] as Node, context);
    }
    const otherwise = cases.length % 2 === 1 ? cases.at(-1) : undefined;
    return otherwise ? evaluate(otherwise, context) : new CellError("#N/A", t.cell.noCase);
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
  OVERRIDE: overrideFirst,
  [MODEL]: ofModel,
  SUMPRODUCT: sumProduct,
  COUNTIF: conditional("COUNTIF"),
  SUMIF: conditional("SUMIF"),
  AVERAGEIF: conditional("AVERAGEIF"),
  CONCAT: (args, context) => joined(args, context),
  CONCATENATE: (args, context) => joined(args, context),
};

/** All functions that a formula may call: those that ask the model as the catalogue has them, then the others by name. */
export const FUNCTION_NAMES: readonly string[] = [
  ...CATALOGUE.keys(), MODEL,
  ...new Set([SPECIAL, OVER_NUMBERS, ARRAYS, COUNTING, ORDINARY].flatMap(Object.keys).concat(DATE_FUNCTIONS)
    .filter((name) => name !== MODEL).sort()),
];

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
