// Columns of answers: what somebody chooses in the dialog, as a formula.

import { AnswerCache } from "relserve-client/answer-cache";
import { type AiColumn, COLUMN_FUNCTIONS, ColumnError, type Dialect, type Table, fieldsOf, formulaOf, previewOf, tableOf, valuesOf } from "relserve-client/column";
import type { Scalar } from "relserve-client/value";
import { describe, expect, test } from "vitest";

import { Sheet } from "../src/core/sheet";

const TABLE: Table = {
  headers: [{ name: "Review", column: 0 }, { name: "Stars", column: 1 }, { name: "C", column: 2 }], first: 1, last: 9, free: 3,
};
const wanted = (name: string, texts: Record<string, string> = {}, over = 0): AiColumn => ({ function: name, over, texts });

describe("a column is a formula over the rows", () => {
  test.each<[AiColumn, string]>([
    [wanted("AI.CLASSIFY", { labels: "good, bad" }), '=AI.CLASSIFY(A2:A10, "good, bad")'],
    [wanted("AI.SUMMARIZE", {}, 2), "=AI.SUMMARIZE(C2:C10)"],
    [wanted("AI.RATE", { low: "0", high: "10" }), "=AI.RATE(A2:A10, , 0, 10)"],
    [wanted("AI.EXTRACT", { what: 'the "name"' }), '=AI.EXTRACT(A2:A10, "the ""name""")'],
    [wanted("AI.ASK", { prompt: "{review}" }), "=AI.ASK(A2:A10)"],
    [wanted("AI.ASK", { prompt: 'Is "{Review}" worth {Stars} stars? ' }), '=AI.ASK("Is """&A2:A10&""" worth "&B2:B10&" stars?")'],
  ])("%o", (column, formula) => {
    expect(formulaOf(column, TABLE)).toBe(formula);
  });

  test.each<[AiColumn, RegExp]>([
    [wanted("AI.CLASSIFY"), /labels is missing/],
    [wanted("AI.RATE", { low: "few" }), /low is no number/],
    [wanted("AI.ASK", { prompt: "What is it?" }), /names no column/],
    [wanted("AI.ASK", { prompt: "{Reviews}" }), /no column \{Reviews\}/],
    [wanted("AI.NOPE"), /no function/],
  ])("%o is refused", (column, words) => {
    expect(() => formulaOf(column, TABLE)).toThrow(ColumnError);
    expect(() => formulaOf(column, TABLE)).toThrow(words);
  });
});

test("a sheet of other separators and names gets its own formula", () => {
  const sheets: Dialect = { name: (name) => name.replace(".", "_"), separator: "; ", joined: (text) => `ARRAYFORMULA(${text})` };
  expect(formulaOf(wanted("AI.RATE", { low: "0" }), TABLE, sheets)).toBe("=AI_RATE(A2:A10; ; 0)");
  expect(formulaOf(wanted("AI.ASK", { prompt: "Is {Review} kind?" }), TABLE, sheets)).toBe('=AI_ASK(ARRAYFORMULA("Is "&A2:A10&" kind?"))');
  expect(formulaOf(wanted("AI.ASK", { prompt: "{Review}" }), TABLE, sheets)).toBe("=AI_ASK(A2:A10)");
});

test("the values of a column are those that its formula would compute", () => {
  const table = { ...TABLE, last: 3 };
  const rows: Scalar[][] = [["Review", "Stars", null], ["fine", 5, null], [null, null, null], ["poor", null, "x"]];
  const value = (row: number, column: number) => rows[row]?.[column] ?? null;
  expect(valuesOf(wanted("AI.CLASSIFY", { labels: "a, b" }), table, value)).toEqual([[["fine"], [null], ["poor"]], "a, b"]);
  expect(valuesOf(wanted("AI.RATE", { high: "9" }, 1), table, value)).toEqual([[[5], [null], [null]], undefined, undefined, 9]);
  expect(valuesOf(wanted("AI.ASK", { prompt: "{Review}: {stars}?" }), table, value)).toEqual(
    [[["fine: 5?"], [null], ["poor: ?"]], undefined]);
  expect(() => valuesOf(wanted("AI.ASK", { prompt: "why?" }), table, value)).toThrow(/names no column/);
});

test("the wizard asks for what a column does not say, and looks at five rows first", () => {
  const fields = Object.fromEntries(COLUMN_FUNCTIONS.map(([name, item]) => [name, fieldsOf(item).map((field) => field.name)]));
  expect(fields).toMatchObject({ "AI.ASK": ["prompt"], "AI.CLASSIFY": ["labels"], "AI.RATE": ["criterion", "low", "high"] });
  expect(previewOf(TABLE)).toMatchObject({ first: 1, last: 5 });
  expect(previewOf({ ...TABLE, last: 2 })).toMatchObject({ first: 1, last: 2 });
});

test("every function that is offered makes a formula", () => {
  const texts = Object.fromEntries(COLUMN_FUNCTIONS.flatMap(([, item]) => item.arguments.map(({ name, kind }) =>
    [name, name === "prompt" ? "of {Review}" : kind === "number" ? "2" : "x"])));
  for (const [name] of COLUMN_FUNCTIONS) expect(formulaOf(wanted(name, texts), TABLE)).toContain("A2:A10");
});

test("a table has headers where its first row has short texts only", () => {
  const table = (...rows: string[][]) => {
    const sheet = new Sheet(new AnswerCache(), () => undefined);
    sheet.set(rows.flatMap((line, row) => line.map((raw, column) => ({ row, column, raw }))));
    sheet.recalculate();
    return tableOf(sheet);
  };
  expect(table(["Review", "", "Stars"], ["fine", "x", "5"])).toEqual({
    headers: [{ name: "Review", column: 0 }, { name: "B", column: 1 }, { name: "Stars", column: 2 }], first: 1, last: 1, free: 3,
  });
  expect(table(["fine", "5"], ["poor", "1"])).toMatchObject({ first: 0, last: 1, headers: [{ name: "A" }, { name: "B" }] });
  expect(table(["x".repeat(80)], ["y"])).toMatchObject({ first: 0 });
  expect(table(["alone"])).toMatchObject({ first: 0, last: 0, free: 1 });
  expect(table()).toBeUndefined();
});
