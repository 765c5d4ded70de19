// Two tabs that write the same sheets.

import { expect, test } from "vitest";

import { SheetWriter, type VersionedStore, copyName } from "../src/app/sheet-writer";
import { type StoredSheet, newSheet } from "../src/store/sheets";

/** A store whose writes wait until the test lets one through. */
class Store implements VersionedStore {
  readonly sheets = new Map<string, StoredSheet>();
  private waiting: (() => void)[] = [];

  get = async (id: string) => structuredClone(this.sheets.get(id));
  put = async (sheet: StoredSheet, base: number) => {
    await new Promise<void>((then) => this.waiting.push(then));
    if ((this.sheets.get(sheet.id)?.version ?? 0) !== base) return false;
    this.sheets.set(sheet.id, structuredClone(sheet));
    return true;
  };

  get writes(): number {
    return this.waiting.length;
  }

  async pass(): Promise<void> {
    this.waiting.shift()?.();
    for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  }

  cells(): Record<string, string> {
    return Object.fromEntries([...this.sheets.values()].map(({ name, rows }) => [name, rows.flat().join()]));
  }
}

class Tab {
  readonly told: string[] = [];
  readonly sheet: StoredSheet;
  readonly writer: SheetWriter;

  constructor(store: Store, sheet: StoredSheet) {
    this.sheet = structuredClone(sheet);
    this.writer = new SheetWriter(store, {
      wrote: (id) => this.told.push(id === this.sheet.id ? "wrote" : `wrote ${id}`),
      conflicted: (mine, other) => {
        this.told.push(other ? `conflict with ${other.rows.flat().join()}` : "conflict with nothing");
        Object.assign(mine, { id: "copy", version: 0, name: copyName(mine.name, [mine.name]) });
      },
      settled: () => this.told.push("settled"),
      failed: (error) => this.told.push(String(error)),
    });
  }

  type(text: string): void {
    this.sheet.rows = [[text]];
    this.writer.edited(this.sheet);
    void this.writer.save(this.sheet);
  }
}

async function opened(tabs: number): Promise<{ store: Store; tabs: Tab[] }> {
  const store = new Store();
  const sheet = { ...newSheet("S", [["old"]]), version: 3 };
  store.sheets.set(sheet.id, sheet);
  return { store, tabs: Array.from({ length: tabs }, () => new Tab(store, sheet)) };
}

test("one write at a time, and what is typed meanwhile is one more", async () => {
  const { store, tabs: [tab] } = await opened(1);
  for (const text of ["a", "b", "c"]) tab?.type(text);
  expect(store.writes).toBe(1);
  await store.pass();
  expect([store.cells(), store.writes]).toEqual([{ S: "a" }, 1]);
  expect(tab?.writer.hasUnsaved(tab.sheet)).toBe(true);
  await store.pass();
  expect([store.cells(), store.writes]).toEqual([{ S: "c" }, 0]);
  expect(tab?.told).toEqual(["wrote", "wrote", "settled"]);
  expect([tab?.sheet.version, tab?.writer.hasUnsaved(tab.sheet)]).toEqual([5, false]);
});

test("the tab that comes second goes on with a copy, and both keep what was typed", async () => {
  const { store, tabs: [first, second] } = await opened(2);
  first?.type("first");
  second?.type("second");
  await store.pass();
  await store.pass();
  expect(second?.told).toEqual(["conflict with first"]);
  await store.pass();
  expect(store.cells()).toEqual({ S: "first", "S (copy)": "second" });
  expect(second?.told.slice(1)).toEqual(["wrote", "settled"]);
  second?.type("more");
  await store.pass();
  expect(store.cells()).toEqual({ S: "first", "S (copy)": "more" });
});

test("what is typed while the race is lost is in the copy", async () => {
  const { store, tabs: [first, second] } = await opened(2);
  first?.type("first");
  second?.type("second");
  second?.type("second and more");
  for (let i = 0; i < 4; i += 1) await store.pass();
  expect(store.cells()).toEqual({ S: "first", "S (copy)": "second and more" });
});

test("a sheet that another tab deleted comes back with what was typed here, and not without", async () => {
  const { store, tabs: [first, second] } = await opened(2);
  store.sheets.clear();
  void first?.writer.save(first.sheet);
  await store.pass();
  expect([store.cells(), first?.told]).toEqual([{}, ["settled"]]);
  second?.type("kept");
  await store.pass();
  await store.pass();
  expect([Object.values(store.cells()), second?.told[0]]).toEqual([["kept"], "conflict with nothing"]);
});

test("usage alone makes no version, and never writes over another tab's edit", async () => {
  const { store, tabs: [first, second] } = await opened(2);
  if (second) second.sheet.usage.asked = 7;
  void second?.writer.save(second.sheet);
  await store.pass();
  expect([...store.sheets.values()].map(({ version, usage }) => [version, usage.asked])).toEqual([[3, 7]]);
  first?.type("first");
  void second?.writer.save(second.sheet);
  await store.pass();
  await store.pass();
  expect([store.cells(), second?.told]).toEqual([{ S: "first" }, ["settled", "settled"]]);
});

test("what another tab wrote is taken over even where usage was to be written on top of the old version", async () => {
  const { store, tabs: [first, second] } = await opened(2);
  first?.type("first");
  void second?.writer.save(second.sheet);
  const waiting = second?.writer.save(second.sheet);
  await store.pass();
  if (second) Object.assign(second.sheet, { rows: [["first"]], version: 4 });
  await store.pass();
  await store.pass();
  await waiting;
  expect(store.cells()).toEqual({ S: "first" });
  second?.type("on top");
  await store.pass();
  expect([store.cells(), second?.sheet.version]).toEqual([{ S: "on top" }, 5]);
});

test("a deleted sheet is written no more", async () => {
  const { store, tabs: [tab] } = await opened(1);
  tab?.type("a");
  tab?.type("b");
  tab?.writer.forget(tab.sheet);
  await store.pass();
  expect([store.writes, store.cells(), tab?.writer.hasUnsaved(tab.sheet)]).toEqual([0, { S: "a" }, false]);
});

test("a copy's name is one that no sheet has", () => {
  expect(copyName("S", ["S"])).toBe("S (copy)");
  expect(copyName("S", ["S", "S (copy)", "S (copy 2)"])).toBe("S (copy 3)");
});
