// What somebody types into a cell, as a value, and what a formula may make of texts.

import { CellError, type Scalar, shown } from "relserve-client/value";

import { t } from "../text";

/** Most characters of a text that a formula makes, as in Excel. */
export const TEXT_MAX = 32_767;

/** A text that a formula made, where it is not too long. */
export function bounded(text: string): string | CellError {
  return text.length <= TEXT_MAX ? text : new CellError("#VALUE!", t.cell.textMax(TEXT_MAX));
}

/** What somebody typed, as a value: a number where it is one, else the text as it is. */
export function typed(raw: string): Scalar {
  if (raw === "") return null;
  const text = raw.trim();
  // Codes and long identifiers are not numbers: they would lose digits.
  if (/^[+-]?(0\d+|\d{16,})$/.test(text)) return raw;
  if (/^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text)) {
    const number = Number(text);
    return Number.isFinite(number) ? number : raw;
  }
  if (/^[+-]?(\d+(\.\d*)?|\.\d+)%$/.test(text)) return Number(text.slice(0, -1)) / 100;
  if (/^true$/i.test(text)) return true;
  if (/^false$/i.test(text)) return false;
  // A leading apostrophe keeps text that would be something else, as in every spreadsheet.
  return raw.startsWith("'") ? raw.slice(1) : raw;
}

/** Whether what somebody typed is a formula. */
export function isFormula(raw: string): boolean {
  return raw.startsWith("=") && raw.length > 1;
}

/** Whether it is one that asks the model. */
export function asksModel(raw: string): boolean {
  return isFormula(raw) && /\bAI\.[A-Z]/i.test(raw);
}

/** What somebody would type to have a value: text that would be read as something else gets an apostrophe. */
export function rawOf(value: Scalar): string {
  const text = shown(value);
  const isText = typeof value === "string";
  return isText && text !== "" && (typed(text) !== text || isFormula(text)) ? `'${text}` : text;
}
