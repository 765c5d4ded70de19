// Round quotes and missing brackets in formulas.

import { expect, test } from "vitest";

import { mended } from "../src/core/mended";

test("a formula that a phone gave round quotes is read with straight ones", () => {
  expect(mended("=AI.CLASSIFY(A2:A9, \u201Cgood, bad\u201D)")).toBe('=AI.CLASSIFY(A2:A9, "good, bad")');
  expect(mended("=UPPER(\u201Ea\u201C)")).toBe('=UPPER("a")');
});

test("round quotes within a text, in a text, and in what is no formula either way stay", () => {
  for (const raw of ['="he said \u201Cyes\u201D"', "\u201CGreat\u201D film", "=UPPER(\u201Ca", '=UPPER("a")', "="]) {
    expect(mended(raw), raw).toBeUndefined();
  }
});

test("brackets that are missing at the end are closed", () => {
  expect(mended("=SUM(A1:A3")).toBe("=SUM(A1:A3)");
  expect(mended('=IF(A1>2, AI.CLASSIFY(A1, "a (b", "c")')).toBe('=IF(A1>2, AI.CLASSIFY(A1, "a (b", "c"))');
  expect(mended("=AI.CLASSIFY(A2, \u201Cgood, bad\u201D ")).toBe('=AI.CLASSIFY(A2, "good, bad")');
  for (const raw of ["=SUM(", "=SUM(A1,", '=AI.ASK("why (', "=SUM(A1))", "=SUM(A1+", "(A1", "=SUM(A1)"]) expect(mended(raw), raw).toBeUndefined();
});
