// Dates as numbers, days since the end of 1899 as other spreadsheets count them, and as texts: `2026-03-01` typed into a
// cell stays this text, so that a model reads a date and not 46082; what computes with it takes it for its number.
// In UTC throughout: a cell's date has no zone.

const DAY_MS = 86_400_000;
const EPOCH = Date.UTC(1899, 11, 30);
/** The last day that other spreadsheets know: 9999-12-31. */
export const SERIAL_MAX = 2_958_465;

const ISO = /^(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2}))?)?$/;

/** The number of a date in ISO form; none of any other text. */
export function serialOf(text: string): number | undefined {
  const parts = ISO.exec(text.trim());
  if (!parts) return undefined;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = parts.slice(1).map((part) => Number(part ?? 0));
  const date = new Date(Date.UTC(year, month - 1, day));
  const isDay = date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
  if (!isDay || year < 1900 || hour > 23 || minute > 59 || second > 59) return undefined;
  return (date.getTime() - EPOCH) / DAY_MS + (hour * 3_600 + minute * 60 + second) / 86_400;
}

/** The number of a day; a month or a day beyond its end goes on in the next, as in every spreadsheet. */
export function serialOfDay(year: number, month: number, day: number): number {
  return Math.round((Date.UTC(year, month - 1, day) - EPOCH) / DAY_MS);
}

/** The date of a number, to the second; its UTC parts are meant. */
export function dateOf(serial: number): Date {
  return new Date(Math.round((EPOCH + serial * DAY_MS) / 1_000) * 1_000);
}

/** The number of an instant by the clock on the wall. */
export function serialOfInstant(instant: Date): number {
  return (instant.getTime() - instant.getTimezoneOffset() * 60_000 - EPOCH) / DAY_MS;
}

/** A number as a date that sorts: with its time where it has one. */
export function isoOf(serial: number): string {
  const text = dateOf(serial).toISOString();
  return serial % 1 === 0 ? text.slice(0, 10) : text.slice(0, 19).replace("T", " ");
}
