// Functions over a list of numbers, however long: formulajs hands lists on as arguments, which a call has no room
// for beyond some 100,000, and goes through them several times.

import type { ErrorCode } from "relserve-client/value";

type OverNumbers = (list: readonly number[], place: number) => number | ErrorCode;

const sum: OverNumbers = (list) => {
  let total = 0;
  for (const number of list) total += number;
  return total;
};

const mean = (list: readonly number[]) => (sum(list, 0) as number) / list.length;

/** The least, or with `sign` -1 the greatest. */
const extreme = (sign: 1 | -1): OverNumbers => (list) => {
  let best = list[0] ?? 0;
  for (const number of list) if (sign * number < sign * best) best = number;
  return best;
};

const variance: OverNumbers = (list) => {
  if (list.length < 2) return "#DIV/0!";
  const middle = mean(list);
  let squares = 0;
  for (const number of list) squares += (number - middle) ** 2;
  return squares / (list.length - 1);
};

const ordered = (list: readonly number[]) => Float64Array.from(list).sort();

/** The one at a place, counted from 1, from the least or from the greatest on. */
const placed = (fromGreatest: boolean): OverNumbers => (list, place) => {
  const index = Math.ceil(place) - 1;
  return ordered(list)[fromGreatest ? list.length - 1 - index : index] ?? "#NUM!";
};

/** By name. The list is never empty; `place` is the second argument of `LARGE` and `SMALL`. */
export const OVER_NUMBERS: Record<string, OverNumbers> = {
  SUM: sum,
  PRODUCT: (list) => {
    let product = 1;
    for (const number of list) product *= number;
    return product;
  },
  MIN: extreme(1),
  MAX: extreme(-1),
  AVERAGE: (list) => mean(list),
  MEDIAN: (list) => {
    const all = ordered(list);
    const middle = all.length >> 1;
    const [low = 0, high = 0] = all.length % 2 ? [all[middle], all[middle]] : [all[middle - 1], all[middle]];
    return (low + high) / 2;
  },
  VAR: variance,
  STDEV: (list) => {
    const squared = variance(list, 0);
    return typeof squared === "number" ? Math.sqrt(squared) : squared;
  },
  LARGE: placed(true),
  SMALL: placed(false),
};
