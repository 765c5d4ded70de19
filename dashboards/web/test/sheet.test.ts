// Sheets: what depends on what, what spills, and what is asked.

import { type Call, keyOf } from "relserve-client/calls";
import { AnswerCache } from "relserve-client/answer-cache";
import { CellError, PENDING, shown } from "relserve-client/value";
import { expect, test } from "vitest";

import { type CellId, cellId, nameOf } from "../src/core/address";
import { Sheet } from "../src/core/sheet";

class World {
  readonly memory = new AnswerCache();
  readonly wants = new Map<CellId, string[]>();
  readonly sheet = new Sheet(this.memory, (cell, calls) => this.wants.set(cell, [...calls.values()].map(text)));

  set(cells: Record<string, string>): string[] {
    this.sheet.set(Object.entries(cells).map(([name, raw]) => ({ ...at(name), raw })));
    return [...this.sheet.recalculate()].map(nameOf).sort();
  }

  answer(call: Call, value: string | number | string[]): void {
    this.memory.put(keyOf(call), { value });
  }

  redo(...names: string[]): void {
    this.sheet.touch(names.map((name) => cellId(at(name).row, at(name).column)));
    this.sheet.recalculate();
  }

  show(...names: string[]): string[] {
    return names.map((name) => shown(this.sheet.value(at(name).row, at(name).column)));
  }

  wanted(name: string): string[] {
    return this.wants.get(cellId(at(name).row, at(name).column)) ?? [];
  }
}

const text = (call: Call) => String(call.args[0]);
const at = (name: string) => ({ row: Number(name.slice(1)) - 1, column: name.charCodeAt(0) - 65 });
const classify = (value: string): Call => ({ function: "classify", args: [value, "good,bad"] });

test("a change computes what depends on it, and nothing else", () => {
  const world = new World();
  world.set({ A1: "1", A2: "=A1*2", A3: "=A2+A1", B1: "=5" });
  expect(world.show("A2", "A3", "B1")).toEqual(["2", "3", "5"]);
  expect(world.set({ A1: "10" })).toEqual(["A1", "A2", "A3"]);
  expect(world.show("A2", "A3")).toEqual(["20", "30"]);
});

test("a circle is an error, and heals", () => {
  const world = new World();
  world.set({ A1: "=B1", B1: "=A1", C1: "=C1+1", D1: "=SUM(D1:D3)" });
  expect(world.show("A1", "B1", "C1", "D1")).toEqual(["#REF!", "#REF!", "#REF!", "#REF!"]);
  world.set({ B1: "3" });
  expect(world.show("A1")).toEqual(["3"]);
});

test("a chain of 5,000 cells is no deep recursion, in either direction", () => {
  const world = new World();
  const down = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`A${i + 1}`, i === 0 ? "1" : `=A${i}+1`]));
  const up = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`B${i + 1}`, i === 4999 ? "1" : `=B${i + 2}+1`]));
  world.set({ ...down, ...up });
  expect(world.show("A5000", "B1")).toEqual(["5000", "5000"]);
  world.set({ A1: "2", B5000: "2" });
  expect(world.show("A5000", "B1")).toEqual(["5001", "5001"]);
});

test("a cell waits at once, asks, and takes its answer", () => {
  const world = new World();
  world.set({ A1: "fine", B1: '=AI.CLASSIFY(A1,"good,bad")', C1: '=B1&"!"' });
  expect(world.sheet.value(0, 1)).toBe(PENDING);
  expect(world.sheet.value(0, 2)).toBe(PENDING);
  expect(world.wanted("B1")).toEqual(["fine"]);
  world.answer(classify("fine"), "good");
  world.redo("B1");
  expect(world.show("B1", "C1")).toEqual(["good", "good!"]);
  expect(world.wanted("B1")).toEqual([]);
});

test("a seen call is answered without asking", () => {
  const world = new World();
  world.answer(classify("fine"), "good");
  world.set({ A1: "fine", B1: '=AI.CLASSIFY(A1,"good,bad")' });
  expect(world.show("B1")).toEqual(["good"]);
  expect(world.wanted("B1")).toEqual([]);
});

test("an edit of what a call reads, and a deletion, take the want back", () => {
  const world = new World();
  world.set({ A1: "x", B1: '=AI.CLASSIFY(A1,"good,bad")' });
  world.set({ A1: "y" });
  expect(world.wanted("B1")).toEqual(["y"]);
  world.set({ B1: "" });
  expect(world.wanted("B1")).toEqual([]);
  expect(world.show("B1")).toEqual([""]);
});

test("a range spills, cell by cell as answers come, blanks staying blank", () => {
  const world = new World();
  world.set({ A1: "x", A3: "y", B1: '=AI.CLASSIFY(A1:A3,"good,bad")', C1: '=COUNTIF(B1:B3,"good")' });
  expect(world.show("B1", "B2", "B3", "C1")).toEqual(["…", "", "…", "…"]);
  world.answer(classify("y"), "good");
  world.redo("B1");
  expect(world.show("B1", "B2", "B3", "C1")).toEqual(["…", "", "good", "…"]);
  world.answer(classify("x"), "bad");
  world.redo("B1");
  expect(world.show("B1", "B3", "C1")).toEqual(["bad", "good", "1"]);
  expect(world.sheet.spilledFrom(2, 1)).toBe(cellId(0, 1));
  expect(world.sheet.extent()).toEqual({ rows: 3, columns: 3 });
});

test("a cell in the way stops a spill, and its going lets it through", () => {
  const world = new World();
  world.set({ A1: "={1;2;3}", A3: "mine" });
  expect(world.sheet.value(0, 0)).toMatchObject({ code: "#SPILL!", note: expect.stringContaining("A3") });
  expect(world.show("A2", "A3")).toEqual(["", "mine"]);
  world.set({ A3: "" });
  expect(world.show("A1", "A2", "A3")).toEqual(["1", "2", "3"]);
  world.set({ A2: "typed" });
  expect(world.show("A1", "A2", "A3")).toEqual(["#SPILL!", "typed", ""]);
  world.set({ A2: "" });
  world.set({ A1: "=7" });
  expect(world.show("A1", "A2", "A3")).toEqual(["7", "", ""]);
});

test("what reads a reader of a spilled cell is computed after it, in whichever order they were typed", () => {
  const world = new World();
  world.set({ C8: "=B3+0", B2: "={1;5}", E1: "=SUM(C8,B2)" });
  expect(world.show("C8", "E1")).toEqual(["5", "6"]);
  const other = new World();
  other.set({ E1: "=SUM(A1:D9)", C8: "=B3+0", B2: "={1;5}" });
  expect(other.show("C8", "E1")).toEqual(["5", "11"]);
});

test("a sum over a long range follows what spills into it from beside, after it was computed", () => {
  const world = new World();
  world.set({ C1: "1", E1: "=SUM(C1:C99)", F1: "=SUM(E1:E99)", B50: "={1,2}" });
  expect(world.show("E1", "F1")).toEqual(["3", "3"]);
  world.set({ B50: "={1,5}", C2: "4" });
  expect(world.show("E1", "F1")).toEqual(["10", "10"]);
});

test("a smaller answer gives back the cells that it had", () => {
  const world = new World();
  world.set({ A1: "=IF(D1=1,{1;2;3},{1;2})", C1: '=A3&""', D1: "1" });
  expect(world.show("A3", "C1")).toEqual(["3", "3"]);
  world.set({ D1: "2" });
  expect(world.show("A2", "A3", "C1")).toEqual(["2", "", ""]);
  expect(world.sheet.spilledFrom(2, 0)).toBeUndefined();
  expect(world.sheet.extent().rows).toBe(2);
});

test("two spills do not overlap", () => {
  const world = new World();
  world.set({ A1: "={1;2}", A2: "" });
  world.set({ B1: "=A1:A2", A3: "={5,6}" });
  expect(world.show("B1", "B2", "A3", "B3")).toEqual(["1", "2", "5", "6"]);
  world.set({ A1: "={1;2;3}" });
  expect(world.show("A1")).toEqual(["#SPILL!"]);
});

test("what reads a spilled cell follows it", () => {
  const world = new World();
  world.set({ A1: "={1;2}", C1: "=A2*10" });
  expect(world.show("C1")).toEqual(["20"]);
  world.set({ A1: "={1;5}" });
  expect(world.show("C1")).toEqual(["50"]);
  world.set({ A1: "" });
  expect(world.show("C1")).toEqual(["0"]);
});

test("whole columns end where the sheet does", () => {
  const world = new World();
  world.set({ A1: "1", A5: "2", B1: "=SUM(A:A)" });
  expect(world.show("B1")).toEqual(["3"]);
  world.set({ A9: "4" });
  expect(world.show("B1")).toEqual(["7"]);
});

test("failures are shown with their words and asked again when wished", () => {
  const world = new World();
  world.memory.put(keyOf(classify("x")), { error: new CellError("#N/A", "the model is busy") });
  world.set({ A1: "x", B1: '=AI.CLASSIFY(A1,"good,bad")' });
  expect(world.sheet.value(0, 1)).toMatchObject({ code: "#N/A", note: "the model is busy" });
  world.memory.forgetFailures();
  world.sheet.touchUnfinished();
  world.sheet.recalculate();
  expect(world.wanted("B1")).toEqual(["x"]);
});

test("a formula that cannot be read says where", () => {
  const world = new World();
  world.set({ A1: "=1+" });
  expect(world.sheet.value(0, 0)).toMatchObject({ code: "#ERROR!", note: expect.stringContaining("character 3") });
});

test("5,000 spilled answers in fifty parts are quick enough to stay out of the way", () => {
  const world = new World();
  const rows = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`A${i + 1}`, `text ${i}`]));
  world.set({ ...rows, B1: '=AI.CLASSIFY(A1:A5000,"good,bad")' });
  for (let part = 0; part < 50; part += 1) {
    for (let i = 0; i < 100; i += 1) world.answer(classify(`text ${part * 100 + i}`), "good");
    world.redo("B1");
  }
  expect(world.show("B1", "B5000")).toEqual(["good", "good"]);
  expect(world.wanted("B1")).toEqual([]);
});
