// What is told of a cell, in words.

import { AnswerCache } from "relserve-client/answer-cache";
import { type Call, keyOf } from "relserve-client/calls";
import type { CellDetails } from "relserve-client/details";
import { expect, test } from "vitest";

import { TEMPLATES } from "../src/app/samples";
import { cellId, nameOf } from "../src/core/address";
import { type CellState, linesOf } from "../src/core/inspect";
import { Sheet } from "../src/core/sheet";
import { asksModel } from "../src/core/typed";

const usage = { prompt_tokens: 61, completion_tokens: 3, computed_tokens: 20, prompt_tokens_details: { cached_tokens: 41 } };
const timing = { waiting_ms: 2_310, running_ms: 4.25, cells_before: 0, rows_waiting: 1, rows_running: 512 };
const said = (details: CellDetails | undefined, isKnown = true) =>
  Object.fromEntries(linesOf({ kind: "answered", details, isKnown }));
const waits = (state: CellState) => Object.fromEntries(linesOf(state))["Why it waits"];

test("a cell that ran says its tokens, its times, and what was before it", () => {
  expect(said({ source: "model", finish_reason: "stop", probability: 0.9234, usage, timing })).toEqual({
    "Probability": "92.3 %, among all answers that the function allows",
    "Answer from": "the model",
    "Prompt tokens": "61: 20 computed, 41 cached",
    "Answer tokens": "3",
    "Time on the server": "waited 2.31 s, ran 4.3 ms",
    "Why it waited": "When its request came, 512 rows ran and 1 row waited on the server, of everybody; it was the first of its " +
      "request to begin. Which of the others went first is under Live.",
  });
  const idle = said({ source: "model", finish_reason: "length", usage, timing: { ...timing, cells_before: 3, rows_waiting: 0, rows_running: 0 } });
  expect(idle["Why it waited"]).toBe("When its request came the server had nothing to do; 3 cells of the same request began before it.");
  const running = said({ source: "model", usage, timing: { ...timing, rows_waiting: 0, rows_running: 2 } });
  expect(running["Why it waited"]).toMatch(/^When its request came, 2 rows ran and 0 rows waited/);
  expect(idle["Answer tokens"]).toBe("3, cut at the most that the function allows");
  const { rows_waiting: _, ...unknown } = { ...timing, cells_before: 1 };
  expect(said({ usage, timing: unknown })["Why it waited"]).toBe("1 cell of the same request began before it; what else the server held is not told.");
});

test("a probability is not rounded to what it is not", () => {
  const likely = (probability?: number) => said({ usage, ...(probability === undefined ? {} : { probability }) }).Probability;
  expect([1, 0.99999, 0.999, 0.5, 0.00001].map((of) => likely(of)?.split(",")[0])).toEqual([
    "100 %", "> 99.9 %", "99.9 %", "50.0 %", "< 0.1 %",
  ]);
  expect(likely()).toMatch(/^not known/);
});

test("one that did not run, or of which nothing is known, says so", () => {
  const cached = said({ source: "cache", finish_reason: "stop", usage: { ...usage, computed_tokens: 0 } });
  expect([cached["Answer from"], cached["Why it waited"]]).toEqual([
    "the server's result cache: the model did not run", "It did not: the answer was known.",
  ]);
  expect(said({ source: "shared", usage })["Why it waited"]).toMatch(/the other cell's answer/);
  expect(Object.values(said(undefined))[0]).toMatch(/this server does not tell/);
  expect(Object.values(said(undefined, false))[0]).toMatch(/no longer in the page's memory/);
  expect(linesOf({ kind: "failed", details: {}, isKnown: true })[0]).toEqual(["Tokens", "none were counted"]);
});

test("one that waits says for what", () => {
  expect(waits({ kind: "queued" })).toMatch(/has not been sent/);
  expect(waits({ kind: "paused" })).toMatch(/Resume/);
  expect(waits({ kind: "away" })).toMatch(/cannot be reached/);
  expect(waits({ kind: "stopped" })).toMatch(/Retry/);
  expect(waits({ kind: "sent", queue: undefined })).toMatch(/does not tell/);
  const queue = { rows: { waiting: 7, running: 1 }, last_decision: "step 3: nothing waits; running relQuery 75 at 21.8 s" };
  expect(waits({ kind: "sent", queue })).toBe(
    "The server has it, with 1 row at work and 7 rows waiting, of everybody, this one counted. Its last step: no row was waiting, so answers went on.",
  );
});

test("a cell's calls are its own in a range, and all where all of them count", () => {
  const memory = new AnswerCache();
  const sheet: Sheet = new Sheet(memory, () => undefined);
  const rate = (text: string): Call => ({ function: "rate", args: [text] });
  for (const text of ["a", "b"]) memory.put(keyOf(rate(text)), { value: 3 });
  sheet.set([
    { row: 0, column: 0, raw: "a" }, { row: 1, column: 0, raw: "b" }, { row: 0, column: 1, raw: "=AI.RATE(A1:A2)" },
    { row: 0, column: 2, raw: "=SUM(AI.RATE(A1:A2))" }, { row: 1, column: 2, raw: "=B2+1" },
  ]);
  sheet.recalculate();
  const found = sheet.callsIn({ row: 0, rowEnd: 9, column: 0, columnEnd: 9 });
  const asked = Object.fromEntries([...found].map(([id, calls]) => [nameOf(id), [...calls.values()].map(({ args }) => args[0])]));
  expect(asked).toEqual({ B1: ["a"], B2: ["b"], C1: ["a", "b"] });
  const formulas = () => [[0, 1], [1, 1], [1, 2], [1, 0]].map(([row = 0, column = 0]) => sheet.formulaOf(row, column));
  expect(formulas(), "of the cell that fills it").toEqual(["=AI.RATE(A1:A2)", "=AI.RATE(A1:A2)", "=B2+1", "b"]);
  sheet.set([{ row: 1, column: 1, raw: "mine" }]);
  sheet.recalculate();
  expect(formulas()[1], "also where its answer was typed over").toBe("=AI.RATE(A1:A2)");
  expect([...(sheet.callsIn({ row: 1, rowEnd: 1, column: 1, columnEnd: 1 }).get(cellId(1, 1)) ?? [])]).toHaveLength(1);
});

test("each template fills a column: all of its formulas ask something, and none is an error", () => {
  expect(TEMPLATES.length).toBeGreaterThanOrEqual(5);
  expect(new Set(TEMPLATES.map(({ name }) => name)).size).toBe(TEMPLATES.length);
  for (const { name, rows, widths } of TEMPLATES) {
    let asked = 0;
    const sheet = new Sheet(new AnswerCache(), (_, calls) => {
      asked += calls.size;
    });
    sheet.set(rows.flatMap((line, row) => line.flatMap((raw, column) => (raw === "" ? [] : [{ row, column, raw }]))));
    sheet.recalculate();
    const formulas = rows.flat().filter(asksModel).length;
    expect(asked, name).toBeGreaterThanOrEqual(Math.max(formulas, rows.length - 1));
    expect(widths.length, name).toBeGreaterThanOrEqual(rows[0]?.length ?? 0);
  }
});
