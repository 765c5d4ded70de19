// "Keep the result", settings, and the formulas that are rewritten.

import { expect, test } from "vitest";

import { isAi, shapeOf, withKept, withoutKept } from "../../shared/formula";
import { again, asValues, inFormulas, unfinished } from "../src/selection";
import { checkedUrl } from "../src/settings";

test("an AI formula is known by its name, not by a text that holds it", () => {
  expect(isAi('=AI_CLASSIFY(A2,"a,b")', "_")).toBe(true);
  expect(isAi('=IF(ai_rate(A2)>3,"keep","call")', "_")).toBe(true);
  expect(isAi('="=AI_RATE(A2)"', "_")).toBe(false);
  expect(isAi("=AI.RATE(A2)", "_")).toBe(false);
  expect(isAi("AI_RATE(A2)", "_")).toBe(false);
  expect(isAi("=MYAI_RATE(A2)", "_")).toBe(false);
});

test("an answer becomes the last argument, and leaves again", () => {
  const cases: [string, (string | number)[][], string][] = [
    ['=AI_CLASSIFY(A2,"good, bad")', [["good"]], '=AI_CLASSIFY(A2,"good, bad","good")'],
    ["=AI_RATE(A2)", [[4]], "=AI_RATE(A2,,,,4)"],
    ['=AI_RATE(A2; "x"; 1; 9)', [[4]], '=AI_RATE(A2;"x";1;9;4)'],
    ["=AI_SUMMARIZE('a (1), b'!A2)", [['say "no"']], "=AI_SUMMARIZE('a (1), b'!A2,,\"say \"\"no\"\"\")"],
    ["=AI_FILL({1,2;3,4},C2:C3)", [["a"], ["b"]], '=AI_FILL({1,2;3,4},C2:C3,{"a";"b"})'],
  ];
  for (const [formula, values, kept] of cases) {
    expect(withKept(formula, values, "_")).toEqual({ formula: kept });
    expect(withKept(kept, values, "_")).toEqual({ formula: kept });
    expect(withoutKept(formula, "_")).toBeUndefined();
  }
  expect(withoutKept("=AI_RATE(A2,,,,4)", "_")).toBe("=AI_RATE(A2)");
  expect(withoutKept('=AI.RATE(A2,"x",,,4)', ".")).toBe('=AI.RATE(A2,"x")');
});

test("what cannot hold its answer says why", () => {
  const refused: [string, string[][], string][] = [
    ["=UPPER(AI_ASK(A2))", [["x"]], "more than one AI call"],
    ["=AI_ASK(A2)&AI_ASK(A3)", [["x"]], "more than one AI call"],
    ["=AI_ASK(A2:B2)", [["x", "y"]], "several columns"],
    ["=AI_ASK(A2)", [["x".repeat(300)]], "255 characters"],
  ];
  for (const [formula, values, reason] of refused) {
    expect(withKept(formula, values, "_")).toEqual({ reason: expect.stringContaining(reason) as unknown });
  }
});

test("a formula says how far it spills", () => {
  const shapes = ["=AI_ASK(A2)", "=AI_ASK($A$2:B9)", "=AI_ASK(Sheet2!A2:A3)", '=AI_ASK("x")', "=AI_LIST(A2)", "=AI_ASK(A2:A)"];
  expect(shapes.map((formula) => shapeOf(formula, "_"))).toEqual([
    { rows: 1, columns: 1 }, { rows: 8, columns: 2 }, { rows: 2, columns: 1 }, { rows: 1, columns: 1 },
    { rows: undefined, columns: 1 }, { rows: undefined, columns: 1 },
  ]);
});

const selection = {
  formulas: [['=AI_CLASSIFY(A2:A4,"a,b")', "=B1", "=AI_RATE(A2)"], ["", "", "=AI_RATE(A3)"], ["", "", ""]],
  values: [["=a", 7, 4], ["", "mine", "#ERROR!"], ["b", 5, "mine too"]],
};

test("kept as values, answers stay texts and cells beside them are not touched", () => {
  const { cells, left } = asValues(selection);
  expect(cells).toEqual([
    { row: 0, column: 0, write: "'=a" }, { row: 1, column: 0, write: "" }, { row: 2, column: 0, write: "'b" },
    { row: 0, column: 2, write: 4 },
  ]);
  expect(left).toEqual([{ row: 1, column: 2, reason: "its answer is not there" }]);
});

test("an answer that goes beyond the selection is not cut off", () => {
  const part = { formulas: [["=AI_ASK(A2:A9)"]], values: [["x"]] };
  expect(asValues(part)).toEqual({ cells: [], left: [{ row: 0, column: 0, reason: "select all cells of its answer" }] });
});

test("kept in formulas, each formula holds its own answer", () => {
  expect(inFormulas(selection).cells).toEqual([
    { row: 0, column: 0, write: '=AI_CLASSIFY(A2:A4,"a,b",{"=a";"";"b"})' },
    { row: 0, column: 2, write: "=AI_RATE(A2,,,,4)" },
  ]);
});

test("only formulas that wait or failed are calculated again; asking again drops kept answers", () => {
  expect(unfinished(selection).cells).toEqual([{ row: 1, column: 2, write: "=AI_RATE(A3)" }]);
  const spilled = { formulas: [["=AI_ASK(A2:A3)"], [""]], values: [["x"], ["#PENDING!"]] };
  expect(unfinished(spilled).cells).toHaveLength(1);
  const kept = { formulas: [["=AI_RATE(A2,,,,4)"]], values: [[4]] };
  expect(again(kept).cells).toEqual([{ row: 0, column: 0, write: "=AI_RATE(A2)" }]);
});

test("an address is checked, and a key never travels in the clear", () => {
  expect(checkedUrl(" https://x.example/base/ ")).toBe("https://x.example/base");
  expect(checkedUrl("http://127.0.0.1:8080")).toBe("http://127.0.0.1:8080");
  for (const bad of ["x.example", "http://x.example", "ftp://x", "https://u:p@x.example", "https://x.example?a=b"]) {
    expect(() => checkedUrl(bad), bad).toThrow("address");
  }
});
