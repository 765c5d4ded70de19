// Round quotes in formulas.

import { expect, test } from "vitest";

import { straightened } from "../src/core/quotes";

test("a formula that a phone gave round quotes is read with straight ones", () => {
  expect(straightened("=AI.CLASSIFY(A2:A9, \u201Cgood, bad\u201D)")).toBe('=AI.CLASSIFY(A2:A9, "good, bad")');
  expect(straightened("=UPPER(\u201Ea\u201C)")).toBe('=UPPER("a")');
});

test("round quotes within a text, in a text, and in what is no formula either way stay", () => {
  for (const raw of ['="he said \u201Cyes\u201D"', "\u201CGreat\u201D film", "=UPPER(\u201Ca", '=UPPER("a")', "="]) {
    expect(straightened(raw), raw).toBeUndefined();
  }
});
