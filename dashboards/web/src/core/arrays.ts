// Functions that look something up or give a range: formulajs has no XLOOKUP and no FILTER, its UNIQUE takes no rows, and
// its SORT orders numbers as texts. Their arguments are values; `undefined` is one left out.

import { CellError, type Matrix, type Scalar, type Value, isMatrix } from "relserve-client/value";

import { t } from "../text";
import { criterion, wildcards } from "./criteria";
import { explained } from "./errors";
import { OVER_NUMBERS } from "./numeric";
import { asMatrix, asNumber, lift, single, truth } from "./operators";
import { compare } from "./order";
import { numbersOf } from "./ranges";

type Arguments = (Value | undefined)[];

/** Most cells that `SEQUENCE` gives. */
const SEQUENCE_MAX = 200_000;

const wrong = (words: string) => new CellError("#VALUE!", words);
const columns = (matrix: Matrix) => matrix[0]?.length ?? 0;
const turned = (matrix: Matrix): Matrix => Array.from({ length: columns(matrix) }, (_, x) => matrix.map((row) => row[x] ?? null));
/** One cell is no range. */
const unwrapped = (matrix: Matrix): Value => (matrix.length === 1 && columns(matrix) === 1 ? (matrix[0]?.[0] ?? null) : matrix);

/** A number that may be left out. */
function numberOr(value: Value | undefined, usual: number): number | CellError {
  if (value === undefined || value === null) return usual;
  const read = asNumber(single(value));
  return typeof read === "number" ? read : read instanceof CellError ? read : usual;
}

/** A truth value that may be left out. */
function isSet(value: Value | undefined): boolean {
  return value !== undefined && truth(single(value)) === true;
}

function same(a: Scalar, b: Scalar): boolean {
  return typeof a === "string" && typeof b === "string" ? a.toLowerCase() === b.toLowerCase() : a === b;
}

/** Where a value is; with `mode` -1 or 1 the next smaller or greater one counts, with 2 its `*` and `?`. */
function place(keys: readonly Scalar[], sought: Scalar, mode: number, isBackwards: boolean): number | undefined {
  const order = keys.map((_, i) => (isBackwards ? keys.length - 1 - i : i));
  const fits = mode === 2 && typeof sought === "string" ? wildcards(sought) : undefined;
  const isIt = (key: Scalar) => (fits ? typeof key === "string" && fits(key) : same(key, sought));
  const exact = order.find((i) => isIt(keys[i] ?? null));
  if (exact !== undefined || (mode !== 1 && mode !== -1)) return exact;
  let best: number | undefined;
  for (const i of order) {
    const key = keys[i] ?? null;
    if (typeof key !== typeof sought || mode * compare(key, sought, false) < 0) continue;
    if (best === undefined || mode * compare(key, keys[best] ?? null, false) < 0) best = i;
  }
  return best;
}

function xlookup([sought = null, lookup = null, give = null, missing, mode, search]: Arguments): Value {
  const [table, results] = [asMatrix(lookup), asMatrix(give)];
  const isRow = table.length === 1 && columns(table) > 1;
  if (!isRow && columns(table) > 1) return wrong(t.cell.lookupShape);
  const keys = isRow ? (table[0] ?? []) : table.map((row) => row[0] ?? null);
  if (keys.length !== (isRow ? columns(results) : results.length)) {
    return wrong(t.cell.lookupSizes);
  }
  const [how, direction] = [numberOr(mode, 0), numberOr(search, 1)];
  if (how instanceof CellError) return how;
  if (direction instanceof CellError) return direction;
  const find = (value: Scalar): Value => {
    if (value instanceof CellError) return value;
    const at = place(keys, value, how, direction < 0);
    if (at === undefined) return missing === undefined ? explained("#N/A") : missing;
    return unwrapped(isRow ? results.map((row) => [row[at] ?? null]) : [results[at] ?? []]);
  };
  return isMatrix(sought) ? lift(sought, (value) => single(find(value))) : find(sought);
}

function filter([array = null, include = null, empty]: Arguments): Value {
  const [rows, conditions] = [asMatrix(array), asMatrix(include)];
  const isByColumn = conditions.length === 1 && conditions.length !== rows.length;
  const [lines, flags] = isByColumn ? [turned(rows), turned(conditions)] : [rows, conditions];
  if (flags.length !== lines.length) return wrong(t.cell.filterSizes);
  const kept: Matrix = [];
  for (const [i, line] of lines.entries()) {
    const flag = flags[i]?.[0] ?? null;
    const isKept = flag instanceof CellError ? flag : truth(flag);
    if (isKept instanceof CellError) return isKept;
    if (isKept) kept.push(line);
  }
  if (kept.length === 0) return empty ?? new CellError("#N/A", t.cell.filterNone);
  return unwrapped(isByColumn ? turned(kept) : kept);
}

function unique([array = null, byColumn, onlyOnce]: Arguments): Value {
  const rows = isSet(byColumn) ? turned(asMatrix(array)) : asMatrix(array);
  const key = (row: Scalar[]) =>
    JSON.stringify(row.map((cell) => (cell instanceof CellError ? [cell.code] : typeof cell === "string" ? cell.toLowerCase() : cell)));
  const times = new Map<string, number>();
  for (const row of rows) times.set(key(row), (times.get(key(row)) ?? 0) + 1);
  const seen = new Set<string>();
  const kept = rows.filter((row) => {
    const isFirst = !seen.has(key(row));
    seen.add(key(row));
    return isFirst && !(isSet(onlyOnce) && times.get(key(row)) !== 1);
  });
  if (kept.length === 0) return new CellError("#N/A", t.cell.uniqueNone);
  return unwrapped(isSet(byColumn) ? turned(kept) : kept);
}

/** Lines in the order of keys, the first of them first; each has its direction. */
function ordered(lines: Matrix, keys: readonly { values: readonly Scalar[]; isDescending: boolean }[]): Matrix {
  const order = lines.map((_, i) => i).sort((a, b) => {
    for (const { values, isDescending } of keys) {
      const difference = compare(values[a] ?? null, values[b] ?? null, isDescending);
      if (difference !== 0) return difference;
    }
    return 0;
  });
  return order.map((i) => lines[i] ?? []);
}

function sort([array = null, index, direction, byColumn]: Arguments): Value {
  const lines = isSet(byColumn) ? turned(asMatrix(array)) : asMatrix(array);
  const [by, sign] = [numberOr(index, 1), numberOr(direction, 1)];
  if (by instanceof CellError) return by;
  if (sign instanceof CellError) return sign;
  if (!Number.isInteger(by) || by < 1 || by > columns(lines)) return wrong(t.cell.sortColumn(by));
  const sorted = ordered(lines, [{ values: lines.map((line) => line[by - 1] ?? null), isDescending: sign < 0 }]);
  return unwrapped(isSet(byColumn) ? turned(sorted) : sorted);
}

function sortBy([array = null, ...rest]: Arguments): Value {
  const rows = asMatrix(array);
  const keys: { values: Scalar[]; isDescending: boolean }[] = [];
  for (let i = 0; i < rest.length; i += 2) {
    const values = asMatrix(rest[i] ?? null).flat();
    const sign = numberOr(rest[i + 1], 1);
    if (sign instanceof CellError) return sign;
    if (values.length !== rows.length) return wrong(t.cell.sortBySizes);
    keys.push({ values, isDescending: sign < 0 });
  }
  return unwrapped(ordered(rows, keys));
}

function sequence(values: Arguments): Value {
  const [rows, width, start, step] = [1, 1, 1, 1].map((usual, i) => numberOr(values[i], usual));
  for (const one of [rows, width, start, step]) if (one instanceof CellError) return one;
  const [height, wide, from, by] = [rows, width, start, step] as [number, number, number, number];
  if (!(height >= 1 && wide >= 1) || height * wide > SEQUENCE_MAX) {
    return wrong(t.cell.sequence(SEQUENCE_MAX, height, wide));
  }
  return unwrapped(Array.from({ length: Math.floor(height) }, (_, y) =>
    Array.from({ length: Math.floor(wide) }, (__, x) => from + by * (y * Math.floor(wide) + x))));
}

/** The cells of `values` for which every pair of a range and what is looked for in it holds. */
function chosen(name: string, values: Matrix | undefined, pairs: Arguments): Scalar[] | CellError {
  const shape = values ?? asMatrix(pairs[0] ?? null);
  const tests: { range: Matrix; test: (cell: Scalar) => boolean }[] = [];
  for (let i = 0; i < pairs.length; i += 2) {
    const range = asMatrix(pairs[i] ?? null);
    const sought = single(pairs[i + 1] ?? null);
    if (sought instanceof CellError) return sought;
    if (range.length !== shape.length || columns(range) !== columns(shape)) return wrong(t.cell.rangeSizes(name));
    tests.push({ range, test: criterion(sought) });
  }
  return shape.flatMap((row, y) => row.filter((_, x) => tests.every(({ range, test }) => test(range[y]?.[x] ?? null))));
}

const countIfs = (values: Arguments): Value => {
  const found = chosen("COUNTIFS", undefined, values);
  return found instanceof CellError ? found : found.length;
};

/** `SUMIFS` and its like: a range, then pairs. Without a number the sum is 0 and an average is none. */
const overChosen = (name: string, what: string, without: Scalar) => ([values = null, ...pairs]: Arguments): Value => {
  const found = chosen(name, asMatrix(values), pairs);
  if (found instanceof CellError) return found;
  const { list, error } = numbersOf(found);
  if (error) return error;
  const result = list.length === 0 ? without : OVER_NUMBERS[what]?.(list, 1);
  return typeof result === "string" ? explained(result) : (result ?? null);
};

/** By name. None is given a cell that waits. */
export const ARRAYS: Record<string, (values: Arguments) => Value> = {
  XLOOKUP: xlookup, FILTER: filter, UNIQUE: unique, SORT: sort, SORTBY: sortBy, SEQUENCE: sequence,
  TRANSPOSE: ([array = null]) => unwrapped(turned(asMatrix(array))),
  COUNTIFS: countIfs,
  SUMIFS: overChosen("SUMIFS", "SUM", 0),
  AVERAGEIFS: overChosen("AVERAGEIFS", "AVERAGE", new CellError("#DIV/0!", t.cell.noNumber)),
  MINIFS: overChosen("MINIFS", "MIN", 0),
  MAXIFS: overChosen("MAXIFS", "MAX", 0),
};
