// Widths of columns that nobody has set: wide enough for most of what stands in them.

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

/** Widths on a screen of so many pixels. */
export function widthsOn(screen: number, widths: readonly number[]): number[] {
  const most = screen > NARROW ? Number.POSITIVE_INFINITY : Math.max(LEAST, Math.round(PART * screen));
  return widths.map((width) => Math.min(width, most));
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
