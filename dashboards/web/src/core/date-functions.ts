// Functions of dates and of formats. formulajs gives JavaScript's dates in the zone of the browser where other spreadsheets
// give numbers, so these few are written here, on numbers.

import { CellError, PENDING, type Scalar, type Value, isMatrix, shown } from "relserve-client/value";

import { t } from "../text";
import { SERIAL_MAX, dateOf, serialOf, serialOfDay } from "./dates";
import { displayed } from "./number-format";
import { asMatrix, asNumber } from "./operators";

/** The time, as a number; `NaN` where there is no clock. */
export type Clock = () => number;

type OfScalars = (values: Scalar[], clock: Clock) => Scalar;

const wrong = (words: string) => new CellError("#VALUE!", words);
const outside = () => new CellError("#NUM!", t.cell.dates);

/** A function over whole numbers, cut towards nought; what is left out is nought. */
const whole = (apply: (...numbers: number[]) => Scalar, isCut = true): OfScalars => (values) => {
  const numbers: number[] = [];
  for (const value of values) {
    const number = asNumber(value);
    if (typeof number !== "number") return number;
    numbers.push(isCut ? Math.floor(number) : number);
  }
  return apply(...numbers);
};

const inRange = (serial: number): Scalar => (serial >= 0 && serial <= SERIAL_MAX + 1 ? serial : outside());

/** A part of a date. */
const part = (read: (date: Date, serial: number) => number) =>
  whole((serial = 0) => (typeof inRange(serial) === "number" ? read(dateOf(serial), serial) : outside()), false);

/** A day some months on, not beyond the end of its month; the month's end itself with `isEnd`. */
const monthsOn = (isEnd: boolean) => whole((start = 0, months = 0) => {
  const date = dateOf(start);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth() + 1 + months];
  const end = serialOfDay(year, month + 1, 0);
  return inRange(isEnd ? end : Math.min(end, serialOfDay(year, month, date.getUTCDate())));
});

function weekday(serial = 0, kind = 1): Scalar {
  if (typeof inRange(serial) !== "number") return outside();
  const sunday = (Math.floor(serial) + 6) % 7;
  if (kind === 1) return sunday + 1;
  if (kind === 2) return ((sunday + 6) % 7) + 1;
  return kind === 3 ? (sunday + 6) % 7 : new CellError("#NUM!", t.cell.weekday);
}

/** Whole years, months or days between two days, and what is left of them. */
function dateDif(values: Scalar[]): Scalar {
  const from = asNumber(values[0] ?? null);
  const to = asNumber(values[1] ?? null);
  if (typeof from !== "number") return from;
  if (typeof to !== "number") return to;
  if (typeof inRange(from) !== "number" || typeof inRange(to) !== "number") return outside();
  if (from > to) return new CellError("#NUM!", t.cell.dateDifOrder);
  const [start, end] = [dateOf(Math.floor(from)), dateOf(Math.floor(to))];
  const isShort = end.getUTCDate() < start.getUTCDate();
  const months = 12 * (end.getUTCFullYear() - start.getUTCFullYear()) + end.getUTCMonth() - start.getUTCMonth() - Number(isShort);
  const days = Math.floor(to) - Math.floor(from);
  switch (shown(values[2] ?? null).toUpperCase()) {
    case "Y": return Math.floor(months / 12);
    case "M": return months;
    case "D": return days;
    case "YM": return months % 12;
    case "MD": return Math.floor(to) - serialOfDay(start.getUTCFullYear(), start.getUTCMonth() + 1 + months, start.getUTCDate());
    case "YD": return Math.floor(to) - serialOfDay(start.getUTCFullYear() + Math.floor(months / 12), start.getUTCMonth() + 1, start.getUTCDate());
    default: return new CellError("#NUM!", t.cell.dateDifUnits);
  }
}

/** How many arguments a function takes at least and at most. */
type Takes = readonly [least: number, most: number];

const FUNCTIONS: Record<string, readonly [Takes, OfScalars]> = {
  TODAY: [[0, 0], (_, clock) => now(clock, Math.floor)],
  NOW: [[0, 0], (_, clock) => now(clock, (serial) => serial)],
  DATE: [[3, 3], whole((year = 0, month = 0, day = 0) => inRange(serialOfDay(year < 1900 ? year + 1900 : year, month, day)))],
  TIME: [[3, 3], whole((hour = 0, minute = 0, second = 0) => {
    const seconds = hour * 3_600 + minute * 60 + second;
    return seconds >= 0 && Number.isFinite(seconds) ? (seconds / 86_400) % 1 : new CellError("#NUM!", t.cell.time);
  })],
  DATEVALUE: [[1, 1], ([text = null]) => {
    const serial = serialOf(shown(text));
    return serial === undefined ? wrong(t.cell.notDate(shown(text))) : Math.floor(serial);
  }],
  YEAR: [[1, 1], part((date) => date.getUTCFullYear())],
  MONTH: [[1, 1], part((date) => date.getUTCMonth() + 1)],
  DAY: [[1, 1], part((date) => date.getUTCDate())],
  HOUR: [[1, 1], part((date) => date.getUTCHours())],
  MINUTE: [[1, 1], part((date) => date.getUTCMinutes())],
  SECOND: [[1, 1], part((date) => date.getUTCSeconds())],
  WEEKDAY: [[1, 2], whole(weekday)],
  DAYS: [[2, 2], whole((end = 0, start = 0) => end - start)],
  EDATE: [[2, 2], monthsOn(false)],
  EOMONTH: [[2, 2], monthsOn(true)],
  DATEDIF: [[3, 3], dateDif],
  TEXT: [[2, 2], ([value = null, format = null]) => displayed(value === null ? 0 : value, shown(format))],
};

function now(clock: Clock, cut: (serial: number) => number): Scalar {
  const serial = clock();
  return Number.isNaN(serial) ? new CellError("#N/A", t.cell.noClock) : cut(serial);
}

/** Functions that give a date, or a date with its time, where no format says otherwise. */
export const GIVES_DATE: Record<string, string> = {
  TODAY: "yyyy-mm-dd", DATE: "yyyy-mm-dd", DATEVALUE: "yyyy-mm-dd", EDATE: "yyyy-mm-dd", EOMONTH: "yyyy-mm-dd",
  NOW: "yyyy-mm-dd hh:mm", TIME: "hh:mm",
};

/** Their names. */
export const DATE_FUNCTIONS: readonly string[] = Object.keys(FUNCTIONS);

/** Whether there is such a function here. */
export const isDateFunction = (name: string) => Object.hasOwn(FUNCTIONS, name);

/** Calls one over values; over ranges it runs cell by cell, and one value meets each. */
export function callDateFunction(name: string, values: Value[], clock: Clock): Value {
  const [[least, most], run] = FUNCTIONS[name] as readonly [Takes, OfScalars];
  if (values.length < least || values.length > most) {
    return new CellError("#N/A", t.cell.takesArguments(name, least, most));
  }
  const one = (cells: Scalar[]): Scalar =>
    cells.find((cell) => cell instanceof CellError) ?? (cells.includes(PENDING) ? PENDING : run(cells, clock));
  if (!values.some(isMatrix)) return one(values as Scalar[]);
  const matrices = values.map(asMatrix);
  const rows = Math.max(...matrices.map((matrix) => matrix.length));
  const columns = Math.max(...matrices.map((matrix) => matrix[0]?.length ?? 0));
  const at = (matrix: Scalar[][], y: number, x: number) => (matrix[matrix.length === 1 ? 0 : y] ?? [])[matrix[0]?.length === 1 ? 0 : x] ?? null;
  return Array.from({ length: rows }, (_, y) =>
    Array.from({ length: columns }, (__, x) => one(matrices.map((matrix) => at(matrix as Scalar[][], y, x)))));
}
