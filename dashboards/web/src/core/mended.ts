// Formulas that cannot be read as they were typed, and plainly mean another: a phone or a word processor has made their quotes
// round, which no formula begins a text with, or the brackets at the end are left out.

import { parse } from "./parse";
import { isFormula } from "./typed";

const ROUND = /[\u201C-\u201F]/g;

function isRead(raw: string): boolean {
  try {
    parse(raw);
    return true;
  } catch {
    return false;
  }
}

/** What was typed, mended where that makes a formula of it; nothing where it stays as it is. */
export function mended(raw: string): string | undefined {
  if (!isFormula(raw) || (raw.search(ROUND) < 0 && openBrackets(raw) === 0) || isRead(raw)) return undefined;
  const straight = raw.replace(ROUND, '"');
  return [straight, closed(straight)].find(isRead);
}

/** The brackets that open and never close, outside of texts and quoted names. */
function openBrackets(formula: string): number {
  const outside = formula.replace(/"[^"]*"|'[^']*'/g, "");
  // What a text that is open at the end has in it is not known.
  if (outside.includes('"')) return 0;
  return Math.max(0, outside.split("(").length - outside.split(")").length);
}

/** With the brackets at its end; where an argument is missing too, somebody has more to type. */
function closed(formula: string): string {
  return /[(,]\s*$/.test(formula) ? formula : formula.trimEnd() + ")".repeat(openBrackets(formula));
}
