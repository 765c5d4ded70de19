// What a selection holds.

import { AnswerCache } from "relserve-client/answer-cache";
import { expect, test } from "vitest";

import { Sheet } from "../src/core/sheet";
import { summarize } from "../src/core/summary";

test("numbers are added up, everything that stands there is counted, as far as the sheet is used", () => {
  const sheet = new Sheet(new AnswerCache(), () => undefined);
  const cells = [["1", "text", "=A1+1.5"], ["", "TRUE", "=1/0"], ["-3", "=AI.RATE(B1)", ""]];
  sheet.set(cells.flatMap((line, row) => line.map((raw, column) => ({ row, column, raw }))));
  sheet.recalculate();
  const all = { row: 0, column: 0, rowEnd: 19_999, columnEnd: 99 };
  expect(summarize(sheet, all)).toEqual({ filled: 7, numbers: 3, sum: 0.5, least: -3, most: 2.5 });
  expect(summarize(sheet, { ...all, column: 1, columnEnd: 1 })).toMatchObject({ filled: 3, numbers: 0, sum: 0 });
  expect(summarize(sheet, { ...all, row: 9, column: 9 })).toMatchObject({ filled: 0, numbers: 0 });
  expect(summarize(sheet, all, (row) => row === 1), "a row that a filter hides").toMatchObject({ filled: 5, numbers: 3, sum: 0.5 });
  expect(summarize(sheet, all, (row) => row !== 1)).toMatchObject({ filled: 2, numbers: 0 });
});
