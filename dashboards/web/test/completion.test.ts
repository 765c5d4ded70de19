// Functions that fit while a formula is typed.

import { expect, test } from "vitest";

import { callAt, completed, completionAt } from "../src/core/completion";
import { FUNCTION_NAMES } from "../src/core/evaluate";
import de from "../src/text/de";
import { en } from "../src/text/en";
import { formatsOf } from "../src/text/formats";
import { helpOf } from "../src/text/functions";

/** The functions that fit at the end of what is typed. */
const fitting = (text: string) => completionAt(text, text.length)?.names ?? [];

test("functions fit by how their names begin, those of the model also without AI", () => {
  expect(fitting("=SU")).toEqual(["SUBSTITUTE", "SUM", "SUMIF", "SUMIFS", "SUMPRODUCT", "AI.SUMMARIZE"]);
  expect(fitting("=ai.c")).toEqual(["AI.CLASSIFY"]);
  expect(fitting("=AI.")).toHaveLength(12);
  expect(fitting("=IF(A2>3,rou")).toEqual(["ROUND", "ROUNDDOWN", "ROUNDUP"]);
  expect(fitting("=-ab")).toEqual(["ABS"]);
});

test("nothing fits where no function may stand", () => {
  for (const text of ["SU", "", "=", "=A1", "=SUM(A2:S", "=Sheet1!S", "=$S", '="say SU', '=AI.ASK("su', "=2SU", "=nonesuch", "='My S"]) {
    expect(fitting(text), text).toEqual([]);
  }
  expect(completionAt("=S!A1", 2)).toBeUndefined();
  expect(completionAt("=S:T", 2)).toBeUndefined();
});

test("a function takes the name's place, and the caret stands in its brackets", () => {
  const at = (text: string, caret: number, name: string, takesNothing = false) => {
    const completion = completionAt(text, caret);
    return completion && completed(text, completion, name, takesNothing);
  };
  expect(at("=su", 3, "SUM")).toEqual({ text: "=SUM(", caret: 5 });
  expect(at("=suxx(A1)+1", 3, "SUM")).toEqual({ text: "=SUM(A1)+1", caret: 5 });
  expect(at("=1+tod", 6, "TODAY", true)).toEqual({ text: "=1+TODAY()", caret: 10 });
});

test("the call around the caret is known with the argument that is typed", () => {
  const around = (text: string) => callAt(text, text.length);
  expect(around("=AI.CLASSIFY(")).toEqual({ name: "AI.CLASSIFY", argument: 0 });
  expect(around('=ai.classify(A2:A9, "good, (bad')).toEqual({ name: "AI.CLASSIFY", argument: 1 });
  expect(around("=IF(SUM(A1,A2)>3,(1")).toEqual({ name: "IF", argument: 1 });
  expect(around("=SUM({1,2,3},'My, (sheet'!A1")).toEqual({ name: "SUM", argument: 1 });
  for (const text of ["=SUM(1)", "SUM(", "=(1", "=1+2"]) expect(around(text), text).toBeUndefined();
});

test("every function is told with its arguments, in each language, and no other", () => {
  const ordinary = FUNCTION_NAMES.filter((name) => helpOf(name).summary === "" || !name.startsWith("AI.") || name === "AI.MODEL");
  for (const { ordinary: told } of [en(formatsOf("en")), de(formatsOf("de"))]) expect(Object.keys(told).sort()).toEqual(ordinary.sort());
  expect(helpOf("AI.RATE").parameters).toEqual(["text", "[criterion]", "[low]", "[high]"]);
  expect(helpOf("TODAY").parameters).toEqual([]);
});
