// What `COUNTIF`, `SUMIF` and `AVERAGEIF` look for, as in Excel: a value, a comparison (`">=5"`), or a text with
// wildcards: `*` is any text, `?` one letter, `~` takes the next one as it is.

import { CellError, type Matrix, type Scalar } from "relserve-client/value";

import { typed } from "./typed";

/** Whether a cell is looked for. */
export type Test = (cell: Scalar) => boolean;

/** What a criterion looks for. */
export function criterion(value: Scalar): Test {
  if (typeof value === "number") return equalsNumber(value);
  if (typeof value === "boolean") return (cell) => cell === value;
  if (typeof value !== "string") return equalsNumber(0);
  if (value === "") return (cell) => cell === null || cell === "";
  const [, operator = "", operand = ""] = /^(<>|<=|>=|<|>|=)?([^]*)$/.exec(value) ?? [];
  if (operand === "") return operator === "=" ? isBlank : operator === "<>" ? (cell) => !isBlank(cell) : (cell) => cell === value;
  const read = operand.startsWith("'") ? operand : typed(operand);
  if (operator === "" || operator === "=") return equals(read);
  if (operator === "<>") {
    const same = equals(read);
    return (cell) => !same(cell);
  }
  return ordered(operator, read);
}

const isBlank: Test = (cell) => cell === null;

function equals(operand: Scalar): Test {
  if (typeof operand === "number") return equalsNumber(operand);
  if (typeof operand !== "string") return (cell) => cell === operand;
  if (/^#(N\/A|[A-Z/0]+[!?])$/i.test(operand)) return (cell) => cell instanceof CellError && cell.code === operand.toUpperCase();
  const matches = wildcards(operand);
  return (cell) => typeof cell === "string" && matches(cell);
}

/** A text that reads as the number counts too: a column of a file may hold both. */
function equalsNumber(number: number): Test {
  return (cell) => cell === number || (typeof cell === "string" && typed(cell) === number);
}

function ordered(operator: string, operand: Scalar): Test {
  const isHeld = (order: number) => (operator[0] === "<" ? order < 0 : order > 0) || (operator.length === 2 && order === 0);
  if (typeof operand === "number") return (cell) => typeof cell === "number" && isHeld(cell - operand);
  if (typeof operand === "boolean") return (cell) => typeof cell === "boolean" && isHeld(Number(cell) - Number(operand));
  const text = String(operand).toLowerCase();
  return (cell) => {
    if (typeof cell !== "string") return false;
    const other = cell.toLowerCase();
    return isHeld(other < text ? -1 : other > text ? 1 : 0);
  };
}

const ANY = Symbol("any text");
const ONE = Symbol("one letter");

/** Matches whole texts, without case. In steps and not by a regular expression, which some patterns keep busy for hours. */
export function wildcards(pattern: string): (text: string) => boolean {
  const lower = pattern.toLowerCase();
  if (!/[*?~]/.test(lower)) return (text) => text === pattern || text.toLowerCase() === lower;
  const parts: (string | symbol)[] = [];
  for (let i = 0; i < lower.length; i += 1) {
    const letter = lower[i] as string;
    if (letter === "~" && /[*?~]/.test(lower[i + 1] ?? "")) parts.push(lower[(i += 1)] as string);
    else parts.push(letter === "*" ? ANY : letter === "?" ? ONE : letter);
  }
  return (text) => matches(parts, text.toLowerCase());
}

function matches(parts: readonly (string | symbol)[], text: string): boolean {
  let [part, at] = [0, 0];
  // The last `*`, and where the text behind it begins: one letter further each time the rest does not fit.
  let [star, from] = [-1, 0];
  while (at < text.length) {
    if (parts[part] === ANY) [star, from, part] = [part, at, part + 1];
    else if (part < parts.length && (parts[part] === ONE || parts[part] === text[at])) [part, at] = [part + 1, at + 1];
    else if (star < 0) return false;
    else [part, from, at] = [star + 1, from + 1, from + 1];
  }
  while (parts[part] === ANY) part += 1;
  return part === parts.length;
}

/** The cells of `values` beside those of `range` that are looked for. */
export function* chosen(range: Matrix, test: Test, values: Matrix): Generator<Scalar> {
  for (const [y, row] of range.entries()) {
    for (let x = 0; x < row.length; x += 1) if (test(row[x] ?? null)) yield values[y]?.[x] ?? null;
  }
}

/** How many cells are looked for. */
export function count(range: Matrix, test: Test): number {
  let found = 0;
  for (const row of range) for (const cell of row) if (test(cell)) found += 1;
  return found;
}
