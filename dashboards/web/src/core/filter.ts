// Which rows a sheet's filters hide. Row 1 is the header and stays; below the last row in use nothing is hidden.

import { CellError, PENDING, type Scalar } from "relserve-client/value";

import { criterion } from "./criteria";
import { serialOf } from "./dates";
import { type ColumnFilter, type Layout, formatAt } from "./layout";
import { displayed } from "./number-format";
import type { Sheet } from "./sheet";
import { typed } from "./typed";

type Cells = Pick<Sheet, "value" | "extent" | "usualFormat">;

/** A cell's text as it is seen, by which it is filtered. */
export function textAt(sheet: Cells, layout: Layout, row: number, column: number): string {
  return displayed(sheet.value(row, column), formatAt(layout, row, column) ?? sheet.usualFormat(row, column));
}

/** The texts of a column with how often each is there, in their order; blank ones are "". */
export function textsOf(sheet: Cells, layout: Layout, column: number): Map<string, number> {
  const counts = new Map<string, number>();
  for (let row = 1; row < sheet.extent().rows; row += 1) {
    const text = textAt(sheet, layout, row, column);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  const order = new Intl.Collator(undefined, { numeric: true });
  return new Map([...counts].sort(([a], [b]) => Number(a === "") - Number(b === "") || order.compare(a, b)));
}

/** The rows that are hidden. */
export function hiddenRows(sheet: Cells, layout: Layout): Set<number> {
  const hidden = new Set<number>();
  for (const filter of layout.filters) {
    const isShown = shows(filter);
    for (let row = 1; row < sheet.extent().rows; row += 1) {
      if (!isShown(sheet.value(row, filter.column), textAt(sheet, layout, row, filter.column))) hidden.add(row);
    }
  }
  return hidden;
}

function shows({ hidden, criterion: words }: ColumnFilter): (value: Scalar, text: string) => boolean {
  const texts = new Set(hidden);
  const fulfils = words === "" ? () => true : fulfilling(words);
  // What waits for its answer is neither of them yet.
  return (value, text) => value === PENDING || (!texts.has(text) && fulfils(value));
}

/** Words alone are looked for anywhere in a text; dates are compared as dates. */
function fulfilling(words: string): (value: Scalar) => boolean {
  const [, operator = "", operand = ""] = /^(<>|<=|>=|<|>|=)?([^]*)$/.exec(words.trim()) ?? [];
  const date = serialOf(operand);
  if (date !== undefined) {
    const test = criterion(`${operator}${date}`);
    return (value) => test(typeof value === "string" ? (serialOf(value) ?? value) : value);
  }
  const isPlain = operator === "" && typeof typed(operand) === "string" && !/[*?~]/.test(operand);
  const test = criterion(isPlain ? `*${operand}*` : words.trim());
  return (value) => !(value instanceof CellError) && test(value);
}
