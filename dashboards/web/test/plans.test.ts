// Plans of calls are kept while a formula waits.

import { expect, test } from "vitest";

import { CATALOGUE } from "relserve-client/catalogue";
import type { Call } from "relserve-client/calls";
import { AnswerCache } from "relserve-client/answer-cache";

import { cellId } from "../src/core/address";
import { parse } from "../src/core/parse";
import { Plans } from "../src/core/plans";
import { Sheet } from "../src/core/sheet";

const CLASSIFY = [...CATALOGUE.values()].find(({ name }) => name === "classify");
if (!CLASSIFY) throw new Error("the catalogue has it");

test("a plan is made once for the same range, anew for another, and anew once it was dropped", () => {
  const tree = parse('=AI.CLASSIFY(A1:A2, "good, bad")');
  if (tree.kind !== "call") throw new Error("it is a call");
  const plans = new Plans();
  const range = [["one"], ["two"]];
  const first = plans.of(CLASSIFY, [range, "good, bad"], tree.args);
  expect(first.keys.flat()).toEqual(['["classify",["one","good, bad"]]', '["classify",["two","good, bad"]]']);
  expect(plans.of(CLASSIFY, [range, "good, bad"], tree.args)).toBe(first);
  const other = plans.of(CLASSIFY, [[["one"], ["three"]], "good, bad"], tree.args);
  expect(other.keys.flat()[1]).toContain("three");
  plans.drop(tree.args);
  expect(plans.of(CLASSIFY, [range, "good, bad"], tree.args)).not.toBe(first);
});

test("a column that fills asks for the same calls each time, and for another one where its cell is typed anew", () => {
  const rows = 100;
  const memory = new AnswerCache();
  const wanted: ReadonlyMap<string, Call>[] = [];
  const sheet = new Sheet(memory, (_, calls) => wanted.push(calls));
  sheet.set(Array.from({ length: rows }, (_, row) => ({ row, column: 0, raw: `text ${row}` })));
  sheet.set([{ row: 0, column: 1, raw: `=AI.CLASSIFY(A1:A${rows}, "good, bad")` }]);
  sheet.recalculate();
  const asked = [...(wanted.at(-1) ?? [])];
  expect(asked).toHaveLength(rows);
  memory.put(asked[0]?.[0] ?? "", { value: "good" });
  sheet.touch([cellId(0, 1)]);
  sheet.recalculate();
  const after = [...(wanted.at(-1) ?? [])];
  expect(after).toHaveLength(rows - 1);
  // The very same calls: none was planned anew.
  expect(after.every(([, call], i) => call === asked[i + 1]?.[1])).toBe(true);
  sheet.set([{ row: 7, column: 0, raw: "another text" }]);
  sheet.recalculate();
  expect([...(wanted.at(-1)?.values() ?? [])].map(({ args }) => args[0])).toContain("another text");
  expect(sheet.value(0, 1)).toBe("good");
});

test("looking at one cell of a column plans nothing anew", () => {
  const rows = 100;
  const sheet = new Sheet(new AnswerCache(), () => undefined);
  sheet.set(Array.from({ length: rows }, (_, row) => ({ row, column: 0, raw: `text ${row}` })));
  sheet.set([{ row: 0, column: 1, raw: `=AI.CLASSIFY(A1:A${rows}, "good, bad")` }]);
  sheet.recalculate();
  const look = (row: number) => [...(sheet.callsIn({ row, column: 1, rowEnd: row, columnEnd: 1 }).get(cellId(row, 1))?.values() ?? [])];
  const [first] = look(7);
  expect(first?.args[0]).toBe("text 7");
  expect(look(7)[0]).toBe(first);
});
