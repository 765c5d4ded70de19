// Widths of columns: what is set where nobody has, and what a phone shows.

import { expect, test } from "vitest";

import { NUMBERS, answersColumn, fitWidths, widthsOn } from "../src/core/widths";

test("columns are as wide as what they hold, within bounds", () => {
  expect(fitWidths([["x", "", "=AI.ASK(A1)"], ["y".repeat(30), "z".repeat(500)]])).toEqual([232, 420, 90]);
  expect(fitWidths([["2026-01-01", "1234567890.5"]]), "digits are wide, and none may be missing").toEqual([106, 124]);
  expect([widthsOn(390, [430, 110]), widthsOn(1280, [430])], "a phone has room for answers beside a text").toEqual([[176, 110], [430]]);
});

const PHONE = 390;

test("a phone shows the first column of answers, however wide the columns before it were made", () => {
  for (const widths of [[520, 110], [900, 900, 130], [300, 90, 420, 420], [600, 600, 600, 600, 110]]) {
    const answers = widths.length - 1;
    const shown = widthsOn(PHONE, widths, answers);
    const before = shown.slice(0, answers).reduce((sum, width) => sum + width, NUMBERS);
    expect(before + 90, String(widths)).toBeLessThanOrEqual(PHONE);
    expect(shown.every((width) => width >= 56), "and of each column something").toBe(true);
  }
});

test("columns that leave room as they are stay so, and a wide screen shows all as it is kept", () => {
  expect(widthsOn(PHONE, [90, 100, 110], 2)).toEqual([90, 100, 110]);
  expect(widthsOn(PHONE, [60, 900, 110], 2), "the wide one makes the room").toEqual([60, 170, 110]);
  expect(widthsOn(1280, [900, 900, 130], 2)).toEqual([900, 900, 130]);
});

test("the first column that the model fills is found by its formulas", () => {
  expect(answersColumn([["Text", "Label"], ["a", "=SUM(C1)", "=AI.RATE(A2)"], ["=ai.ask(B1)"]])).toBe(0);
  expect(answersColumn([["Text"], ["'=AI.RATE(A2)"], [null]])).toBeUndefined();
});
