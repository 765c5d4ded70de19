// Widths of columns: what nobody has set is wide enough for most of what stands in it, and a narrow screen shows less of each.

import { asksModel } from "./typed";

/** Pixels of a letter, of a digit of the widest usual font, of what is around a text, and the bounds of a column. */
const LETTER = 7.2;
const DIGIT = 9;
const AROUND = 16;
const LEAST = 90;
const MOST = 420;
/** Rows that are looked at. */
const ROWS = 200;
/** Numbers and dates, which are not cut where they do not fit. */
const NUMBER = /^[-+\d.,:/%\s]+$/;
/** Up to this width a screen is narrow, and a column takes so much of it at most: one of texts leaves room for its answers. */
const NARROW = 720;
const PART = 0.45;

/** Pixels of the column of row numbers, and of a column where others need its room. */
export const NUMBERS = 50;
const SQUEEZED = 56;

/** Widths as a screen of so many pixels shows them: on a narrow one the columns before the first of answers leave room for it. */
export function widthsOn(screen: number, widths: readonly number[], answers?: number): number[] {
  if (screen > NARROW) return [...widths];
  const most = Math.max(LEAST, Math.round(PART * screen));
  const shown = widths.map((width) => Math.min(width, most));
  if (answers === undefined) return shown;
  const share = shareOf(screen - NUMBERS - (shown[answers] ?? 0), shown.slice(0, answers));
  return shown.map((width, column) => (column < answers ? Math.min(width, share) : width));
}

/** The width that no column may exceed for all to fit into so much room. */
function shareOf(room: number, widths: readonly number[]): number {
  let left = room;
  for (const [place, width] of widths.toSorted((a, b) => a - b).entries()) {
    const share = Math.floor(left / (widths.length - place));
    if (width > share) return Math.max(SQUEEZED, share);
    left -= width;
  }
  return Number.POSITIVE_INFINITY;
}

/** The first column that the model fills, where there is one. */
export function answersColumn(rows: readonly (readonly unknown[])[]): number | undefined {
  const found = rows.slice(0, ROWS).map((row) => row.findIndex((raw) => asksModel(String(raw ?? "")))).filter((column) => column >= 0);
  return found.length > 0 ? Math.min(...found) : undefined;
}

/** A width for each column of rows; a formula's length says nothing of its answer's. */
export function fitWidths(rows: readonly (readonly string[])[]): number[] {
  const widths: number[] = [];
  for (const row of rows.slice(0, ROWS)) {
    for (const [column, raw] of row.entries()) {
      const wish = raw.startsWith("=") ? 0 : AROUND + raw.length * (NUMBER.test(raw) ? DIGIT : LETTER);
      widths[column] = Math.round(Math.min(MOST, Math.max(LEAST, widths[column] ?? 0, wish)));
    }
  }
  return Array.from(widths, (width) => width ?? LEAST);
}
