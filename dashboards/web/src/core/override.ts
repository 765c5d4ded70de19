// Answers that somebody typed over. Inside of the area that an AI formula fills a typed cell stands for its answer,
// and the rest stays. The formula's own cell has room for one text only: there the typed value stands in front of
// the formula, `=OVERRIDE("mine", AI.RATE(A2:A9))`, so that undo, copies, files and other tabs need to know nothing of it.

import { type Area, type CellId, cellId } from "./address";
import { FormulaError, LENGTH_MAX, tokens } from "./parse";
import type { Sheet } from "./sheet";
import { isFormula, rawOf, typed } from "./typed";

/** The function's name. */
export const OVERRIDE = "OVERRIDE";

/** A formula whose first answer was typed over. */
export interface Override {
  /** What was typed. */
  raw: string;
  /** The formula without it, with its `=`. */
  formula: string;
}

/** A formula whose first answer is what was typed; nothing where that would be too long for a formula. */
export function override(formula: string, raw: string): string | undefined {
  const whole = `=${OVERRIDE}(${expression(raw)}, ${formula.slice(1)})`;
  return whole.length <= LENGTH_MAX ? whole : undefined;
}

/** Takes an `OVERRIDE` apart; nothing where the text is none. */
export function overridden(raw: string): Override | undefined {
  if (!isFormula(raw) || !raw.slice(1).trimStart().toUpperCase().startsWith(OVERRIDE)) return undefined;
  const source = raw.slice(1);
  const list = read(source);
  const [name, open] = list;
  const close = list.at(-2);
  if (name?.text.toUpperCase() !== OVERRIDE || open?.text !== "(" || close?.text !== ")") return undefined;
  let depth = 0;
  for (const token of list.slice(1)) {
    if (token.kind !== "sign") continue;
    if ("({".includes(token.text)) depth += 1;
    else if (")}".includes(token.text)) depth -= 1;
    else if (depth === 1 && (token.text === "," || token.text === ";")) {
      return {
        raw: typedAs(source.slice(open.at + 1, token.at).trim()),
        formula: `=${source.slice(token.at + 1, close.at).trim()}`,
      };
    }
  }
  return undefined;
}

function read(source: string): ReturnType<typeof tokens> {
  try {
    return tokens(source);
  } catch (error) {
    if (!(error instanceof FormulaError)) throw error;
    return [];
  }
}

/** What somebody types, as a part of a formula. */
function expression(raw: string): string {
  if (isFormula(raw)) return raw.slice(1);
  const value = typed(raw);
  if (typeof value === "number") return String(value);
  if (typeof value === "boolean") return value ? "TRUE" : "FALSE";
  return `"${String(value ?? "").replaceAll('"', '""')}"`;
}

/** The other way round. */
function typedAs(part: string): string {
  if (/^"(?:[^"]|"")*"$/.test(part)) return rawOf(part.slice(1, -1).replaceAll('""', '"'));
  return typeof typed(part) === "string" ? `=${part}` : part;
}

/**
 * What becomes of the formula's own cell when `raw` is typed into it while its answer fills other cells too; nothing
 * where it is as typed. `all` is everything that is typed in the same step.
 */
export function overtyped(
  sheet: Sheet, row: number, column: number, raw: string, all: ReadonlyMap<CellId, string>,
): string | undefined {
  const area = sheet.spillOf(row, column);
  if (!area || !sheet.isAi(row, column) || isFormula(raw) || isAllIn(area, all)) return undefined;
  const before = sheet.raw(row, column);
  const held = overridden(before);
  // Deleting what was typed over the answer brings the answer back; deleting the answer deletes its formula.
  if (raw === "") return held?.formula;
  return override(held?.formula ?? before, raw);
}

/** Whether nothing of an area is left as it was. */
function isAllIn(area: Area, all: ReadonlyMap<CellId, string>): boolean {
  for (let row = area.row; row <= area.rowEnd; row += 1) {
    for (let column = area.column; column <= area.columnEnd; column += 1) if (!all.has(cellId(row, column))) return false;
  }
  return true;
}
