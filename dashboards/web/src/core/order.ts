// The order of values, for sorting rows and in formulas.

import { CellError, type Scalar } from "relserve-client/value";

const TEXTS = new Intl.Collator(undefined, { sensitivity: "accent" });

/** Numbers, texts, truth values, errors, as Excel has them. */
function rank(value: Scalar): number {
  return typeof value === "number" ? 0 : typeof value === "string" ? 1 : typeof value === "boolean" ? 2 : 3;
}

function isBlank(value: Scalar): boolean {
  return value === null || value === "";
}

/** Which of two values comes first; blank ones are last in both directions. */
export function compare(a: Scalar, b: Scalar, isDescending: boolean): number {
  if (isBlank(a) || isBlank(b)) return Number(isBlank(a)) - Number(isBlank(b));
  let order = rank(a) - rank(b);
  if (order === 0) {
    if (a instanceof CellError) return 0;
    order = typeof a === "string" ? TEXTS.compare(a, String(b)) : Number(a) - Number(b);
  }
  return isDescending ? -order : order;
}
