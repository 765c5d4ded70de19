// Rows and columns that come, go and are sorted, and the references that follow them.

import { type Call, keyOf } from "relserve-client/calls";
import { AnswerCache } from "relserve-client/answer-cache";
import { CellError, shown } from "relserve-client/value";
import { describe, expect, test } from "vitest";

import { cellId, cellName } from "../src/core/address";
import { type Edit, Refusal, type Step, follow, rearrange, widthsAfter } from "../src/core/arrange";
import { Sheet } from "../src/core/sheet";
import { shift } from "../src/core/shift";
import { compare } from "../src/core/order";
import { sortRows } from "../src/core/sort";

const at = (name: string) => ({ row: Number(name.slice(1)) - 1, column: name.charCodeAt(0) - 65 });
const edit = (kind: Edit["kind"], axis: Edit["axis"], first: number, count = 1): Edit => ({ kind, axis, at: first, count });
const insertRow = (row: number, count = 1) => edit("insert", "row", row - 1, count);
const deleteRow = (row: number, count = 1) => edit("delete", "row", row - 1, count);

class World {
  readonly memory = new AnswerCache();
  readonly asked: string[] = [];
  readonly sheet = new Sheet(this.memory, (_, calls) => this.asked.push(...calls.keys()));

  constructor(cells: Record<string, string> = {}) {
    this.sheet.set(Object.entries(cells).map(([name, raw]) => ({ ...at(name), raw })));
    this.sheet.recalculate();
  }

  apply(steps: Step[], isBack = false): Step[] {
    this.sheet.set(steps.map(({ row, column, before, after }) => ({ row, column, raw: isBack ? before : after })));
    this.sheet.recalculate();
    return steps;
  }

  edit(...edits: Edit[]): Step[][] {
    return edits.map((one) => this.apply(rearrange(this.sheet.typed(), one)));
  }

  sort(from: number, to: number, column: string, isDescending = false): Step[] {
    return this.apply(sortRows(this.sheet, { row: from - 1, rowEnd: to - 1, column: column.charCodeAt(0) - 65, isDescending }));
  }

  answer(call: Call, value: string): void {
    this.memory.put(keyOf(call), { value });
  }

  /** What is typed, in one order. */
  raws(): Record<string, string> {
    const all = [...this.sheet.typed()].sort((a, b) => cellId(a.row, a.column) - cellId(b.row, b.column));
    return Object.fromEntries(all.map(({ row, column, raw }) => [cellName(row, column), raw]));
  }

  values(...names: string[]): string[] {
    return names.map((name) => shown(this.sheet.value(at(name).row, at(name).column)));
  }
}

describe("a formula follows rows and columns", () => {
  test.each<[string, Edit, string]>([
    ["=A5+$A$5+A$4+$A4", insertRow(5), "=A6+$A$6+A$4+$A4"],
    ["=SUM(A2:A9)", insertRow(5, 3), "=SUM(A2:A12)"],
    ["=SUM(A2:A9)", insertRow(2), "=SUM(A3:A10)"],
    ["=SUM(A2:A9)", insertRow(10), "=SUM(A2:A9)"],
    ["=SUM(A9:A2)", insertRow(5), "=SUM(A10:A2)"],
    ["=SUM(A:A)+SUM($B:$C)", insertRow(1), "=SUM(A:A)+SUM($B:$C)"],
    ["=SUM(A:A)+SUM($B:$C)", edit("insert", "column", 2), "=SUM(A:A)+SUM($B:$D)"],
    ["=SUM(A:A)+SUM($B:$C)", edit("delete", "column", 0), "=SUM(#REF!)+SUM($A:$B)"],
    ["=B1*$C$1", edit("insert", "column", 1), "=C1*$D$1"],
    ["=A5+1", deleteRow(5), "=#REF!+1"],
    ["=A6+A4", deleteRow(5), "=A5+A4"],
    ["=SUM(A2:A9)", deleteRow(2, 3), "=SUM(A2:A6)"],
    ["=SUM(A2:A9)", deleteRow(8, 5), "=SUM(A2:A7)"],
    ["=SUM(A2:A9)", deleteRow(1, 20), "=SUM(#REF!)"],
    ["=SUM(A5:A20000)", insertRow(7), "=SUM(A5:A20000)"],
    ["=A20000", insertRow(7), "=#REF!"],
    ['=AI.CLASSIFY(a5, "A5, B5")&LOG10(A5)', insertRow(1), '=AI.CLASSIFY(A6, "A5, B5")&LOG10(A6)'],
    ["=a1+A5", insertRow(5), "=a1+A6"],
    ["=ZZ5+#REF!+1E5", insertRow(1), "=ZZ5+#REF!+1E5"],
    ["A5", insertRow(1), "A5"],
    ["'=A5", insertRow(1), "'=A5"],
  ])("%s with %o is %s", (raw, change, followed) => {
    expect(follow(raw, change)).toBe(followed);
  });

  test("a copied range leaves the sheet as a whole, and whole columns move with a copy", () => {
    expect(shift("=SUM(A1:A3)", -1, 0)).toBe("=SUM(#REF!)");
    expect(shift("=SUM(A:A)+SUM($A:B)", 0, 1)).toBe("=SUM(B:B)+SUM($A:C)");
  });
});

test("a deleted cell is #REF! in text and value, and comes back whole by undo", () => {
  const world = new World({ A1: "1", A2: "2", A3: "3", B1: "=A2*10", C1: "=SUM(A1:A3)", D5: "=B1&C1" });
  const before = world.raws();
  const [steps = []] = world.edit(deleteRow(2));
  expect(world.raws()).toEqual({ A1: "1", A2: "3", B1: "=#REF!*10", C1: "=SUM(A1:A2)", D4: "=B1&C1" });
  expect(world.values("B1", "C1")).toEqual(["#REF!", "4"]);
  world.apply(steps, true);
  expect(world.raws()).toEqual(before);
  expect(world.values("B1", "C1", "D5")).toEqual(["20", "6", "206"]);
});

test("what spills moves with its formula, and a row inside it makes it longer", () => {
  const world = new World({ A1: "x", A2: "1", A3: "2", B2: "=A2:A3*10", C1: "=B3" });
  world.edit(insertRow(1));
  expect(world.values("B2", "B3", "B4", "C2")).toEqual(["", "10", "20", "20"]);
  world.edit(insertRow(4));
  expect(world.values("B3", "B4", "B5", "C2")).toEqual(["10", "0", "20", "20"]);
  world.edit(deleteRow(3));
  expect(world.values("B3", "B4", "C2"), "the formula stood in the deleted row").toEqual(["", "", ""]);
});

test("nothing is pushed off the sheet", () => {
  const world = new World({ A20000: "last", B1: "x" });
  expect(() => world.edit(insertRow(5))).toThrow(Refusal);
  expect(() => world.edit(insertRow(5))).toThrow(/A20000 would be pushed off/);
  expect(world.raws()).toEqual({ B1: "x", A20000: "last" });
  const wide = new Sheet(new AnswerCache(), () => undefined);
  wide.set([{ row: 0, column: 99, raw: "x" }]);
  expect(() => rearrange(wide.typed(), edit("insert", "column", 0))).toThrow(/column CV, and CV1/);
});

test("widths move with their columns", () => {
  expect(widthsAfter([10, 20, 30], edit("insert", "column", 1), 5)).toEqual([10, 5, 20]);
  expect(widthsAfter([10, 20, 30], edit("delete", "column", 0, 2), 5)).toEqual([30, 5, 5]);
  expect(widthsAfter([10, 20, 30], insertRow(1), 5)).toEqual([10, 20, 30]);
});

/** Numbers that are the same on every run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Formulas read columns to their left only: of a circle, the values depend on where it was entered. */
function anySheet(next: (below: number) => number): World {
  const name = (columns: number, isFree = true) => {
    const fixed = () => (isFree && next(3) === 0 ? "$" : "");
    return `${fixed()}${"ABCDEF"[next(columns)]}${fixed()}${next(12) + 1}`;
  };
  const cells: Record<string, string> = {};
  for (let i = 0; i < 40; i += 1) {
    const here = name(6, false);
    const left = at(here).column;
    const formulas = [
      () => `=${name(left)}+${name(left)}`, () => `=SUM(${name(left)}:${name(left)})`, () => `=COUNTIF(A:A,${name(left)})`,
      () => `={1;${next(9)}}`,
    ];
    cells[here] = left > 0 && next(2) === 0 ? (formulas[next(4)]?.() ?? "") : next(2) === 0 ? String(next(50)) : `text ${next(9)}`;
  }
  return new World(cells);
}

test("in 300 random sheets an insertion that is deleted again, and any step undone, leave all as it was", () => {
  const next = numbers(7);
  for (let run = 0; run < 300; run += 1) {
    const world = anySheet(next);
    const state = () => ({ raws: world.raws(), values: shownAll(world) });
    const before = state();
    const axis = next(2) === 0 ? "row" as const : "column" as const;
    const [place, count] = [next(14), next(4) + 1];
    world.edit(edit("insert", axis, place, count), edit("delete", axis, place, count));
    expect(state()).toEqual(before);
    for (const kind of ["insert", "delete"] as const) {
      const [steps = []] = world.edit(edit(kind, axis, place, count));
      const fresh = new World(world.raws());
      expect(shownAll(world), "as if it had been typed so").toEqual(shownAll(fresh));
      world.apply(steps, true);
      expect(state()).toEqual(before);
    }
  }
});

function shownAll(world: World): string[] {
  return Array.from({ length: 20 * 12 }, (_, i) => shown(world.sheet.value(Math.floor(i / 12), i % 12)));
}

describe("sorting", () => {
  test("numbers, texts without case, truth values, errors, and blank ones last in both directions", () => {
    const [no, pi] = [new CellError("#N/A"), 3.14];
    const values = ["b", null, pi, "A", true, no, 2, ""];
    expect([...values].sort((a, b) => compare(a, b, false))).toEqual([2, pi, "A", "b", true, no, null, ""]);
    expect([...values].sort((a, b) => compare(a, b, true))).toEqual([no, true, "b", "A", pi, 2, null, ""]);
  });

  test("rows move whole and stable, with references to their own row; others stay", () => {
    const world = new World({
      A1: "n", A2: "3", A3: "1", A4: "3", A6: "2", B2: "c", B3: "a", B4: "d", B6: "b",
      C2: "=A2*10+A$2", C3: "=SUM(A3:B3)", C4: "=$A4&A$1&A2", D6: "=SUM(A2:A6)", E1: "=A2",
    });
    const before = world.raws();
    const steps = world.sort(2, 20_000, "A");
    expect(world.raws()).toEqual({
      A1: "n", E1: "=A2", A2: "1", B2: "a", C2: "=SUM(A2:B2)", A3: "2", B3: "b", D3: "=SUM(A2:A6)", A4: "3", B4: "c",
      C4: "=A4*10+A$2", A5: "3", B5: "d", C5: "=$A5&A$1&A2",
    });
    world.apply(steps, true);
    expect(world.raws()).toEqual(before);
    world.sort(3, 4, "B", true);
    expect(world.values("B2", "B3", "B4", "B6")).toEqual(["c", "d", "a", "b"]);
  });

  test("by a column of answers: they follow the rows, and nothing is asked again", () => {
    const world = new World({ A1: "Review", B1: "Class", A2: "fine", A3: "poor", A4: "good" });
    const formula = '=AI.CLASSIFY(A2:A4,"x,y")';
    for (const [text, label] of [["fine", "y"], ["poor", "x"], ["good", "x"]] as const) {
      world.answer({ function: "classify", args: [text, "x,y"] }, label);
    }
    world.sheet.set([{ ...at("B2"), raw: formula }]);
    world.sheet.recalculate();
    world.sort(2, 20_000, "B");
    expect(world.values("A2", "A3", "A4", "B2", "B3", "B4")).toEqual(["poor", "good", "fine", "x", "x", "y"]);
    expect(world.raws()["B2"]).toBe(formula);
    expect(world.asked).toEqual([]);
  });

  test("a column that waits, and one where text stands beside answers, are refused", () => {
    const world = new World({ A1: "b", A2: "a", B1: '=AI.RATE(A1)' });
    expect(() => world.sort(1, 2, "B")).toThrow(/B1 still waits/);
    const mixed = new World({ A1: "Head", A2: "2", A3: "1", B1: "Tens", B2: "=A2:A3*10" });
    expect(() => mixed.sort(1, 3, "A")).toThrow(/B1 stands in a column that B2 fills: select rows out of 2 to 3/);
    mixed.sort(2, 3, "A");
    expect(mixed.values("A2", "B2", "B3")).toEqual(["1", "10", "20"]);
  });
});
