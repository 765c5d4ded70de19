// How a value is shown: number formats as Excel and Sheets write them (`#,##0.00`, `yyyy-mm-dd`), by numfmt (MIT), which
// knows all of them. A format changes what is seen, never what a cell is worth.

import { format, isDateFormat } from "numfmt";
import { CellError, PENDING, type Scalar, shown } from "relserve-client/value";

import { t } from "../text";
import { serialOf } from "./dates";

/** A format with a name people know. */
export interface NamedFormat {
  name: string;
  code: string;
}

/** What the toolbar offers; the first is none. */
export const FORMATS: readonly NamedFormat[] = [
  { name: t.formats.automatic, code: "" },
  { name: t.formats.number, code: "#,##0.00" },
  { name: t.formats.whole, code: "#,##0" },
  { name: t.formats.percent, code: "0.00%" },
  { name: t.formats.euro, code: "#,##0.00 [$€]" },
  { name: t.formats.dollar, code: "[$$]#,##0.00" },
  { name: t.formats.scientific, code: "0.00E+00" },
  { name: t.formats.date, code: "yyyy-mm-dd" },
  { name: t.formats.dayFirst, code: "dd.mm.yyyy" },
  { name: t.formats.longDate, code: "d mmmm yyyy" },
  { name: t.formats.dateAndTime, code: "yyyy-mm-dd hh:mm" },
  { name: t.formats.time, code: "hh:mm:ss" },
  { name: t.formats.text, code: "@" },
];

/** Longest format, as in Excel. */
export const FORMAT_MAX = 255;

/** A value as a format shows it; as it is where the format says nothing of it. */
export function displayed(value: Scalar, code: string | undefined): string {
  if (!code || code === "General" || value instanceof CellError || value === PENDING || value === null) return shown(value);
  // A date that was typed is a text: a format of dates shows it as one.
  const date = typeof value === "string" && isDate(code) ? serialOf(value) : undefined;
  try {
    return format(code, date ?? value, { nbsp: false });
  } catch {
    return shown(value);
  }
}

/** Whether a format shows numbers as dates or times. */
export function isDate(code: string): boolean {
  try {
    return isDateFormat(code);
  } catch {
    return false;
  }
}

/** Whether a format can be read. */
export function isFormat(code: string): boolean {
  if (code.length > FORMAT_MAX) return false;
  try {
    format(code, 1);
    return true;
  } catch {
    return false;
  }
}

/** The format with one decimal more, or less; of what has no digits, the digits of a number. */
export function withDecimals(code: string, change: 1 | -1): string {
  const base = code === "" || !/0/.test(code) || isDate(code) ? "#,##0" : code;
  return base.split(";").map((part) => changed(part, change)).join(";");
}

function changed(part: string, change: 1 | -1): string {
  const decimals = /\.(0+)/.exec(part);
  if (change > 0) return decimals ? part.replace(/\.0+/, (digits) => `${digits}0`) : part.replace(/0(?!.*0)/, "0.0");
  return decimals?.[1] === undefined ? part : part.replace(/\.0+/, (digits) => (digits.length <= 2 ? "" : digits.slice(0, -1)));
}
