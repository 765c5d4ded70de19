// References by a press on cells.

import { expect, test } from "vitest";

import { referenceTo, takesReference } from "../src/core/pointing";

test("a press writes a reference behind a sign of a formula, and nowhere else", () => {
  for (const before of ["=", "=SUM(", "=A1+", "=AI.CLASSIFY(A1:A9, ", '=IF(A1="yes";', "=(A1)>"]) expect(takesReference(before), before).toBe(true);
  for (const before of ["", "text (", "=A1", "=SUM(A1)", '="a, ', '=AI.ASK("is it (', "=2"]) expect(takesReference(before), before).toBe(false);
});

test("a drag is a range, however it is drawn, and heads of columns are columns", () => {
  expect(referenceTo({ row: 1, column: 0 }, { row: 1, column: 0 })).toBe("A2");
  expect(referenceTo({ row: 5, column: 2 }, { row: 1, column: 0 })).toBe("A2:C6");
  expect(referenceTo({ row: undefined, column: 1 }, { row: undefined, column: 1 })).toBe("B:B");
  expect(referenceTo({ row: undefined, column: 1 }, { row: 4, column: 0 })).toBe("A:B");
});
