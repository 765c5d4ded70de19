// Numbers, dates and plurals as a language writes them, by the browser's own `Intl`. Cells are none of this: their formats
// are Excel's, the same in every language.

/** What messages and views need of a language. */
export interface Formats {
  /** Its tag, such as `de`. */
  language: string;
  /** An amount with its thousands apart. */
  count(value: number): string;
  /** A number with so many decimals. */
  decimal(value: number, digits: number): string;
  /** A part of 1 in percent. */
  percent(part: number, digits?: number): string;
  /** Unix seconds as date and time. */
  moment(seconds: number, timeStyle?: "short" | "medium"): string;
  /** Unix milliseconds as the time of day. */
  time(milliseconds: number): string;
  /** The form that goes with an amount: languages have between one and six of them. */
  plural(value: number, forms: PluralForms): string;
}

/** `other` is what is said where no other form is meant. */
export type PluralForms = Partial<Record<Intl.LDMLPluralRule, string>> & { other: string };

/** The formats of a language. */
export function formatsOf(language: string): Formats {
  const whole = new Intl.NumberFormat(language);
  const rules = new Intl.PluralRules(language);
  const byDigits = new Map<number, Intl.NumberFormat>();
  const fixed = (digits: number) => {
    const known = byDigits.get(digits) ?? new Intl.NumberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
    byDigits.set(digits, known);
    return known;
  };
  const decimal = (value: number, digits: number) => fixed(digits).format(value);
  return {
    language,
    count: (value) => whole.format(value),
    decimal,
    percent: (part, digits = 0) => `${decimal(100 * part, digits)} %`,
    moment: (seconds, timeStyle = "short") =>
      new Date(seconds * 1_000).toLocaleString(language, { dateStyle: "medium", timeStyle }),
    time: (milliseconds) => new Date(milliseconds).toLocaleTimeString(language, { timeStyle: "medium" }),
    plural: (value, forms) => forms[rules.select(value)] ?? forms.other,
  };
}
