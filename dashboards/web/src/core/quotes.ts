// Quotes that a phone or a word processor has made round: no formula begins a text with them, so one that cannot be read for
// them is read with straight ones.

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

/** What was typed, with straight quotes where that makes a formula of it; nothing where it stays as it is. */
export function straightened(raw: string): string | undefined {
  if (!isFormula(raw) || raw.search(ROUND) < 0 || isRead(raw)) return undefined;
  const straight = raw.replace(ROUND, '"');
  return isRead(straight) ? straight : undefined;
}
