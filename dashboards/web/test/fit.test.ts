// Numbers in narrow columns.

import { expect, test } from "vitest";

import { TOO_WIDE, fitted } from "../src/core/fit";

const within = (characters: number) => (text: string) => text.length <= characters;
const fit = (value: number, characters: number, text = String(value), isFormatted = false) =>
  fitted(text, value, isFormatted, within(characters));

test("a number that fits is as it is", () => {
  expect(fit(1234.5, 6)).toBe("1234.5");
});

test("one without a format loses digits behind the point, and is rounded", () => {
  expect(fit(2 / 3, 6)).toBe("0.6667");
  expect(fit(-1234.567, 7)).toBe("-1234.6");
  expect(fit(1234.567, 4)).toBe("1235");
  expect(fit(0.999999, 4)).toBe("1");
});

test("a small one does not become 0", () => {
  expect(fit(0.00001234567, 7)).toBe("1.23E-5");
});

test("a whole number is never cut, and a formatted one never changed: signs stand there", () => {
  expect(fit(1234567, 6)).toBe(TOO_WIDE);
  expect(fit(1234.567, 6, "1,234.57", true)).toBe(TOO_WIDE);
  expect(fit(46_000, 6, "2025-12-09", true)).toBe(TOO_WIDE);
});
