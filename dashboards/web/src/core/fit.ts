// A number in a column that is too narrow for it. Cut off, it would be another number: `1234567` as `1234…`. One without a
// format loses decimals, as in other spreadsheets; where that is not enough, signs stand there that no number has.

/** Most digits behind the point that a number can have. */
const DECIMALS_MAX = 20;
/** What stands for a number that does not fit. */
export const TOO_WIDE = "####";

/** A number's text as it fits: as it is, with fewer digits where no format has chosen them, or `TOO_WIDE`. */
export function fitted(text: string, value: number, isFormatted: boolean, fits: (text: string) => boolean): string {
  if (fits(text)) return text;
  return (isFormatted ? undefined : [...shorter(value)].find(fits)) ?? TOO_WIDE;
}

/** A number rounded says nothing else than the number itself: by so much of it at most. */
const ROUNDED_BY = 1 / 20;

/** A number with fewer and fewer digits behind the point, then with a power of ten. */
function* shorter(value: number): Generator<string> {
  const decimals = Math.min(DECIMALS_MAX, (/\.(\d+)/.exec(String(value))?.[1] ?? "").length);
  for (let digits = decimals - 1; digits >= 0; digits -= 1) {
    const rounded = Number(value.toFixed(digits));
    if (Math.abs(rounded - value) <= Math.abs(value) * ROUNDED_BY) yield String(rounded);
  }
  // Of a whole number all digits count; a power of ten would hide some of them.
  if (Number.isInteger(value)) return;
  for (let digits = 5; digits >= 0; digits -= 1) yield value.toExponential(digits).toUpperCase();
}
