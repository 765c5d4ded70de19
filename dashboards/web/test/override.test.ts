// Answers that are typed over: the typed value stands, the others stay.

import { AnswerCache } from "relserve-client/answer-cache";
import { type Call, keyOf } from "relserve-client/calls";
import { PENDING, shown } from "relserve-client/value";
import { DOMParser } from "@xmldom/xmldom";
import { describe, expect, test } from "vitest";

import { xlsxOf } from "../src/app/files";
import { cellId, cellName, nameOf } from "../src/core/address";
import { keepValues } from "../src/core/keep";
import { overridden, override, overtyped } from "../src/core/override";
import { Sheet } from "../src/core/sheet";
import { sortRows } from "../src/core/sort";
import { readXlsx } from "../src/files/xlsx";

const at = (name: string) => ({ row: Number(name.slice(1)) - 1, column: name.charCodeAt(0) - 65 });
const idOf = (name: string) => cellId(at(name).row, at(name).column);
const FORMULA = '=AI.CLASSIFY(A2:A5,"good,bad")';
const TEXTS = ["fine", "poor", "late", "new"];

class World {
  readonly memory = new AnswerCache();
  wanted: string[] = [];
  readonly sheet = new Sheet(this.memory, (_, calls) => {
    this.wanted = [...calls.values()].map((call) => String(call.args[0]));
  });

  constructor(answers: Record<string, string> = {}) {
    for (const [text, value] of Object.entries(answers)) {
      const call: Call = { function: "classify", args: [text, "good,bad"] };
      this.memory.put(keyOf(call), { value });
    }
  }

  set(cells: Record<string, string>): this {
    this.sheet.set(Object.entries(cells).map(([name, raw]) => ({ ...at(name), raw })));
    this.sheet.recalculate();
    return this;
  }

  /** Types as the grid does, in one step. */
  type(cells: Record<string, string>): this {
    const all = new Map(Object.entries(cells).map(([name, raw]) => [idOf(name), raw]));
    const taken = Object.entries(cells).map(([name, raw]) => {
      const { row, column } = at(name);
      return [name, overtyped(this.sheet, row, column, raw, all) ?? raw] as const;
    });
    return this.set(Object.fromEntries(taken));
  }

  show(...names: string[]): string[] {
    return names.map((name) => shown(this.sheet.value(at(name).row, at(name).column)));
  }

  column(letter: string): string[] {
    return this.show(...[2, 3, 4, 5].map((row) => `${letter}${row}`));
  }

  edited(): string[] {
    return [2, 3, 4, 5].map((row) => `B${row}`).filter((name) => this.sheet.overrides(idOf(name)) !== undefined);
  }

  raws(): Record<string, string> {
    return Object.fromEntries([...this.sheet.typed()].map(({ row, column, raw }) => [cellName(row, column), raw]));
  }
}

const ANSWERS = { fine: "good", poor: "bad", late: "bad", new: "good" };
const filled = (answers: Record<string, string> = ANSWERS) =>
  new World(answers).set({ A2: "fine", A3: "poor", A4: "late", A5: "new", B2: FORMULA });

test("a typed value stands for its answer, is edited, and the rest stays", () => {
  const world = filled().set({ C1: '=COUNTIF(B2:B5,"good")' });
  world.type({ B4: "good" });
  expect(world.column("B")).toEqual(["good", "bad", "good", "good"]);
  expect(world.edited()).toEqual(["B4"]);
  expect(world.sheet.overrides(idOf("B4"))).toBe(idOf("B2"));
  expect(world.sheet.spilledFrom(3, 1)).toBeUndefined();
  expect(nameOf(world.sheet.spilledFrom(4, 1) ?? 0)).toBe("B2");
  expect(world.show("C1")).toEqual(["3"]);
  world.type({ B4: "" });
  expect(world.column("B"), "deleted, the answer is back").toEqual(["good", "bad", "bad", "good"]);
  expect([world.edited(), world.show("C1")]).toEqual([[], ["2"]]);
});

test("typed over before the formula was there, and when the formula goes, a value is what it is", () => {
  const world = new World(ANSWERS).set({ A2: "fine", A3: "poor", A4: "late", A5: "new", B4: "mine" });
  world.set({ B2: FORMULA });
  expect([world.column("B"), world.edited()]).toEqual([["good", "bad", "mine", "good"], ["B4"]]);
  world.set({ B2: "" });
  expect([world.column("B"), world.edited()]).toEqual([["", "", "mine", ""], []]);
});

test("the first answer is typed over in front of the formula; deleting that brings the answer back, then the formula goes", () => {
  const world = filled();
  world.type({ B2: "bad" });
  expect(world.raws()["B2"]).toBe('=OVERRIDE("bad", AI.CLASSIFY(A2:A5,"good,bad"))');
  expect([world.column("B"), world.edited()]).toEqual([["bad", "bad", "bad", "good"], ["B2"]]);
  world.type({ B2: "7" });
  expect(world.sheet.value(1, 1)).toBe(7);
  world.type({ B2: "" });
  expect([world.raws()["B2"], world.column("B")]).toEqual([FORMULA, ["good", "bad", "bad", "good"]]);
  world.type({ B2: "" });
  expect([world.raws()["B2"], world.column("B")]).toEqual([undefined, ["", "", "", ""]]);
});

test("another formula, and values for all of the answers, take the formula's place", () => {
  const world = filled();
  world.type({ B2: "=1+1" });
  expect([world.raws()["B2"], world.column("B")]).toEqual(["=1+1", ["2", "", "", ""]]);
  const kept = filled();
  kept.type({ B2: "good", B3: "bad", B4: "bad", B5: "good" });
  expect([kept.raws()["B2"], kept.edited()]).toEqual(["good", []]);
  kept.type({ B2: "one" });
  expect(kept.raws()["B2"]).toBe("one");
});

test("a formula of one answer, and one that asks nothing, are replaced or blocked as in every spreadsheet", () => {
  const world = new World(ANSWERS).set({ A2: "fine", B2: '=AI.CLASSIFY(A2,"good,bad")', D2: "={1;2;3}" });
  world.type({ B2: "mine", D3: "mine" });
  expect([world.raws()["B2"], world.show("D2", "D3", "D4")]).toEqual(["mine", ["#SPILL!", "mine", ""]]);
});

test("an answer that is typed over is not asked, and asked once it is wanted again", () => {
  const world = new World();
  world.set({ A2: "fine", A3: "poor", A4: "late", A5: "new", B2: FORMULA });
  expect(world.wanted).toEqual(TEXTS);
  world.type({ B3: "bad" });
  expect(world.wanted).toEqual(["fine", "late", "new"]);
  world.type({ B2: "good" });
  expect(world.wanted).toEqual(["late", "new"]);
  expect([world.sheet.value(1, 1), world.sheet.value(2, 1), world.sheet.value(3, 1)]).toEqual(["good", "bad", PENDING]);
  world.type({ B3: "" });
  expect(world.wanted).toEqual(["poor", "late", "new"]);
  expect(world.sheet.value(2, 1)).toBe(PENDING);
});

test("a sort takes typed answers along with their rows, onto the formula's own cell and away from it", () => {
  const world = filled();
  world.type({ B2: "zzz", B4: "aaa" });
  const rows = () => [2, 3, 4, 5].map((row) => world.show(`A${row}`, `B${row}`));
  const sort = (isDescending: boolean) => {
    const steps = sortRows(world.sheet, { row: 1, rowEnd: 4, column: 1, isDescending });
    world.set(Object.fromEntries(steps.map(({ row, column, after }) => [cellName(row, column), after])));
  };
  sort(false);
  expect(rows()).toEqual([["late", "aaa"], ["poor", "bad"], ["new", "good"], ["fine", "zzz"]]);
  expect(world.raws()["B2"]).toBe('=OVERRIDE("aaa", AI.CLASSIFY(A2:A5,"good,bad"))');
  expect(world.edited()).toEqual(["B2", "B5"]);
  sort(true);
  expect(rows()).toEqual([["fine", "zzz"], ["new", "good"], ["poor", "bad"], ["late", "aaa"]]);
  world.set({ B9: "below" });
  expect(() => sortRows(world.sheet, { row: 1, rowEnd: 20, column: 0, isDescending: false })).toThrow(/B9 stands in a column/);
});

test("typed answers leave in an XLSX and come back with their formula", async () => {
  const world = filled();
  world.type({ B2: "zzz", B4: "aaa", B5: "=UPPER(A5)" });
  const bytes = await xlsxOf([{ name: "S", sheet: world.sheet }], "S", new Map());
  const parse = (text: string) => new DOMParser().parseFromString(text, "text/xml") as unknown as Document;
  const again = new World(ANSWERS);
  for (const [row, line] of (readXlsx(bytes, parse)[0]?.rows ?? []).entries()) {
    again.sheet.set(line.map((raw, column) => ({ row, column, raw })));
  }
  again.sheet.recalculate();
  expect(again.column("B")).toEqual(["zzz", "bad", "aaa", "NEW"]);
  expect(again.edited()).toEqual(["B2", "B4", "B5"]);
  expect(again.raws()).toEqual(world.raws());
});

describe("a formula with a value in front of it", () => {
  test.each<[string, string]>([
    ["good", '=OVERRIDE("good", AI.TAG(A1:A9))'],
    ['say "no", (then) go', '=OVERRIDE("say ""no"", (then) go", AI.TAG(A1:A9))'],
    ["12", "=OVERRIDE(12, AI.TAG(A1:A9))"],
    ["-1.5", "=OVERRIDE(-1.5, AI.TAG(A1:A9))"],
    ["007", '=OVERRIDE("007", AI.TAG(A1:A9))'],
    ["TRUE", "=OVERRIDE(TRUE, AI.TAG(A1:A9))"],
    ["'=not run", '=OVERRIDE("=not run", AI.TAG(A1:A9))'],
    ["'12", '=OVERRIDE("12", AI.TAG(A1:A9))'],
    ['=IF(A2>1, "a;b", {1,2})', '=OVERRIDE(IF(A2>1, "a;b", {1,2}), AI.TAG(A1:A9))'],
  ])("%s", (raw, whole) => {
    expect(override("=AI.TAG(A1:A9)", raw)).toBe(whole);
    expect(overridden(whole)).toEqual({ raw, formula: "=AI.TAG(A1:A9)" });
  });

  test.each(["=AI.TAG(A1)", "=OVERRIDE", "=OVERRIDE(1)", "=OVERRIDE(1, 2)+1", "text", "=OVERRIDE(\"open, 2)"])("%s is none", (raw) => {
    expect(overridden(raw)).toBeUndefined();
  });

  test("is bounded as every formula", () => {
    expect(override("=AI.TAG(A1:A9)", "x".repeat(9_000))).toBeUndefined();
  });
});

test("answers kept as values stand without their formula, typed ones as they are", () => {
  const world = filled().set({ D1: "=1/0", D2: '="12"&""' });
  world.type({ B2: "mine", B4: "theirs" });
  const keep = (names: [string, string]) => {
    const [from, to] = names.map(at) as [ReturnType<typeof at>, ReturnType<typeof at>];
    const steps = keepValues(world.sheet, { ...from, rowEnd: to.row, columnEnd: to.column });
    world.set(Object.fromEntries(steps.map(({ row, column, after }) => [cellName(row, column), after])));
    return steps;
  };
  const before = world.raws();
  const steps = keep(["B5", "B5"]);
  expect(world.raws()).toEqual({ ...before, B2: "mine", B3: "bad", B4: "theirs", B5: "good" });
  expect(world.edited()).toEqual([]);
  world.set(Object.fromEntries(steps.map(({ row, column, before: raw }) => [cellName(row, column), raw])));
  expect([world.raws(), world.edited()], "undone").toEqual([before, ["B2", "B4"]]);
  keep(["D1", "D2"]);
  expect([world.raws()["D1"], world.raws()["D2"], world.sheet.value(1, 3)]).toEqual(["#DIV/0!", "'12", "12"]);
  const waits = new World().set({ A2: "fine", A3: "poor", A4: "late", A5: "new", B2: FORMULA });
  expect(() => keepValues(waits.sheet, { ...at("B3"), rowEnd: 2, columnEnd: 1 })).toThrow(/B2 still waits/);
});
