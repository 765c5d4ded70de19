// Values that stand instead of answers: what had been asked for them, wherever they move, and whether that has changed.

import { AnswerCache } from "relserve-client/answer-cache";
import { expect, test } from "vitest";

import { cellId, nameOf } from "../src/core/address";
import { rearrange } from "../src/core/arrange";
import { keepValues } from "../src/core/keep";
import {
  type Origins, afterEdit, afterKeeping, afterSort, afterTyping, alone, askChanged, changedCells, followed, renamed, restored, stored,
} from "../src/core/origins";
import { Sheet } from "../src/core/sheet";
import { placesOf, sortRows } from "../src/core/sort";

const at = (name: string) => ({ row: Number(name.slice(1)) - 1, column: name.charCodeAt(0) - 65 });
const TEXTS = ["fine", "poor", "late", "new"];

/** A sheet whose answers are the texts in capitals. */
class World {
  readonly memory = new AnswerCache();
  origins: Origins = new Map();
  readonly sheet: Sheet = new Sheet(this.memory, (_, calls) => {
    for (const [key, { args }] of calls) this.memory.put(key, { value: String(args[0]).toUpperCase() });
  });

  constructor(cells: Record<string, string>) {
    this.type(cells);
  }

  private set(changes: { row: number; column: number; raw: string }[]): void {
    this.sheet.set(changes);
    this.sheet.recalculate();
    // Their answers are there at once.
    this.sheet.touchUnfinished();
    this.sheet.recalculate();
  }

  type(cells: Record<string, string>): this {
    const changes = Object.entries(cells).map(([name, raw]) => ({ ...at(name), raw }));
    this.set(changes);
    this.origins = afterTyping(this.sheet, this.origins, changes);
    return this;
  }

  step(steps: { row: number; column: number; after: string }[], origins: Origins): this {
    this.set(steps.map(({ row, column, after }) => ({ row, column, raw: after })));
    this.origins = origins;
    return this;
  }

  keep(row: number, rowEnd: number): this {
    const steps = keepValues(this.sheet, { row, rowEnd, column: 1, columnEnd: 1 });
    return this.step(steps, afterKeeping(this.sheet, this.origins, steps));
  }

  changed(): string[] {
    return changedCells(this.sheet, this.origins).map(nameOf);
  }

  asks(): Record<string, string> {
    return Object.fromEntries(askChanged(this.sheet, this.origins).map(({ row, column, raw }) => [nameOf(cellId(row, column)), raw]));
  }
}

const column = () =>
  new World({ A1: "Text", B1: "Class", ...Object.fromEntries(TEXTS.map((text, i) => [`A${i + 2}`, text])), B2: '=AI.EDIT(A2:A5,"loud")' });

test("a value that was typed over an answer has changed once its cells have, and not before", () => {
  const world = column().type({ B3: "mine" });
  expect([world.changed(), world.asks()]).toEqual([[], {}]);
  world.type({ A4: "other" });
  expect(world.changed()).toEqual([]);
  world.type({ A3: "poorer" });
  expect(world.changed()).toEqual(["B3"]);
  expect(world.asks()).toEqual({ B3: "" });
  world.type({ A3: "poor" });
  expect(world.changed()).toEqual([]);
  world.type({ A3: "poorer", B3: "" });
  expect(world.changed()).toEqual([]);
});

test("what is typed over the first answer is asked again by the formula behind it", () => {
  const world = column().type({ B2: '=OVERRIDE("mine", AI.EDIT(A2:A5,"loud"))', A2: "finer" }).type({ A2: "finest" });
  expect(world.asks()).toEqual({ B2: '=AI.EDIT(A2:A5,"loud")' });
});

test("kept values know the formula that would answer each of them alone", () => {
  const world = column().type({ B3: "mine" }).type({ A3: "poorer" }).keep(1, 1);
  expect(world.sheet.raw(2, 1)).toBe("mine");
  expect(world.changed()).toEqual(["B3"]);
  world.type({ A5: "newest" });
  expect(world.asks()).toEqual({ B3: '=AI.EDIT(A3,"loud")', B5: '=AI.EDIT(A5,"loud")' });
  world.type(world.asks());
  expect([world.sheet.value(2, 1), world.sheet.value(4, 1)]).toEqual(["POORER", "NEWEST"]);
  expect(world.changed()).toEqual([]);
});

test("they move with their rows: put in, deleted, sorted", () => {
  const world = column().keep(1, 1);
  const insert = { kind: "insert", axis: "row", at: 2, count: 2 } as const;
  world.step(rearrange(world.sheet.typed(), insert), afterEdit(world.origins, insert));
  world.type({ A5: "poorer" });
  expect(world.asks()).toEqual({ B5: '=AI.EDIT(A5,"loud")' });
  const remove = { kind: "delete", axis: "row", at: 2, count: 2 } as const;
  world.step(rearrange(world.sheet.typed(), remove), afterEdit(world.origins, remove));
  expect(world.asks()).toEqual({ B3: '=AI.EDIT(A3,"loud")' });
  const order = { row: 1, rowEnd: 4, column: 0, isDescending: true };
  const places = placesOf(world.sheet, order);
  world.step(sortRows(world.sheet, order, places), afterSort(world.origins, places));
  expect(world.sheet.value(1, 0)).toBe("poorer");
  expect(world.asks()).toEqual({ B2: '=AI.EDIT(A2,"loud")' });
});

test("a column that is deleted leaves nothing to ask, and what is typed instead of a kept value has no origin", () => {
  const world = column().keep(1, 1).type({ A3: "poorer", A4: "later" });
  world.type({ B4: "=1+1" });
  expect(world.changed()).toEqual(["B3"]);
  const remove = { kind: "delete", axis: "column", at: 0, count: 1 } as const;
  world.step(rearrange(world.sheet.typed(), remove), afterEdit(world.origins, remove));
  expect(world.changed()).toEqual([]);
});

test("origins come back from rest", () => {
  const world = column().keep(1, 1).type({ A3: "poorer" });
  const back = restored(structuredClone(stored(world.origins)));
  expect(changedCells(world.sheet, back).map(nameOf)).toEqual(["B3"]);
  expect(restored(undefined).size).toBe(0);
});

test("they follow the new name of a sheet that they read", () => {
  const world = column().keep(1, 1).type({ A3: "poorer" });
  world.origins = renamed(world.origins, (raw) => raw.replace("A3", "A4"));
  expect(world.asks()).toEqual({ B3: '=AI.EDIT(A4,"loud")' });
});

test("only ranges as large as what is filled become cells", () => {
  const area = { row: 1, rowEnd: 4, column: 1, columnEnd: 1 };
  expect(alone('=AI.CLASSIFY(A2:A5, D$1:D$3)&A2', area, 3, 1)).toBe('=AI.CLASSIFY(A4, D$1:D$3)&A2');
  expect(alone("=AI.RATE($A$2:$A$5)", area, 2, 1)).toBe("=AI.RATE($A$3)");
  expect(alone("=AI.RATE(A2)", { ...area, rowEnd: 1 }, 1, 1)).toBe("=AI.RATE(A2)");
});

test("what was kept from a formula that reads another sheet follows that sheet's rows; other tables stay the same ones", () => {
  const origins: Origins = new Map([[cellId(0, 1), { formula: "=AI.RATE(Data!A5)", asked: "x" }]]);
  const insert = { kind: "insert", axis: "row", at: 2, count: 2 } as const;
  expect(followed(origins, insert, "Data").get(cellId(0, 1))).toEqual({ formula: "=AI.RATE(Data!A7)", asked: "x" });
  expect(followed(origins, insert, "Other")).toBe(origins);
});
