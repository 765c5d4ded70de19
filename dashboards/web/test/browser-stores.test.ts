// What a browser keeps between pages: letters that were typed last, and whose sheets are in which store.

import { expect, test } from "vitest";

import { committed } from "../src/store/indexed";
import { Journal } from "../src/store/journal";
import { storesOf } from "../src/store/scope";
import { type StoredSheet, newSheet } from "../src/store/sheets";

/** The browser's storage of texts. */
class Texts implements Storage {
  [name: string]: unknown;
  private readonly held = new Map<string, string>();
  room = Infinity;

  get length(): number {
    return this.held.size;
  }
  getItem = (key: string) => this.held.get(key) ?? null;
  setItem = (key: string, value: string) => {
    if (value.length > this.room) throw new Error("QuotaExceededError");
    this.held.set(key, value);
  };
  removeItem = (key: string) => void this.held.delete(key);
  key = (at: number) => [...this.held.keys()][at] ?? null;
  clear = () => this.held.clear();
}

/** A store of sheets with versions. */
function store(...sheets: StoredSheet[]) {
  const held = new Map(sheets.map((sheet) => [sheet.id, sheet]));
  return {
    held,
    get: async (id: string) => held.get(id),
    put: async (sheet: StoredSheet, base: number) => {
      if ((held.get(sheet.id)?.version ?? 0) !== base) return false;
      held.set(sheet.id, sheet);
      return true;
    },
  };
}

/** What an earlier page left. */
function left(sheet: StoredSheet): Texts {
  const texts = new Texts();
  new Journal("relserve", texts).keep(sheet);
  return texts;
}

const sheet = { ...newSheet("S", [["typed"]]), version: 3 };

test("what was typed when the page went is put on top of what the store has", async () => {
  const kept = store({ ...sheet, rows: [["old"]] });
  const texts = left(sheet);
  expect(await new Journal("relserve", texts).recover(kept)).toEqual([]);
  expect([kept.held.get(sheet.id)?.rows, kept.held.get(sheet.id)?.version, texts.length]).toEqual([[["typed"]], 4, 0]);
});

test("what the store took after all is left alone, and what another tab wrote is not written over", async () => {
  const same = store({ ...sheet, version: 4 });
  expect(await new Journal("relserve", left(sheet)).recover(same)).toEqual([]);
  expect([...same.held.values()].map(({ version }) => version)).toEqual([4]);
  const other = store({ ...sheet, rows: [["other"]], version: 5 });
  expect(await new Journal("relserve", left(sheet)).recover(other)).toEqual(["S (unsaved)"]);
  expect([...other.held.values()].map(({ name, rows }) => [name, rows])).toEqual([["S", [["other"]]], ["S (unsaved)", [["typed"]]]]);
});

test("a full browser is no error, and what the store took is forgotten", async () => {
  const texts = new Texts();
  const journal = new Journal("relserve", texts);
  texts.room = 10;
  expect(journal.keep(sheet)).toBe(false);
  texts.room = Infinity;
  expect(journal.keep(sheet)).toBe(true);
  journal.drop();
  expect(texts.length).toBe(0);
});

test("what one tenant typed last is not put among another's sheets", async () => {
  const texts = left(sheet);
  const other = store();
  expect(await new Journal("relserve-b2", texts).recover(other)).toEqual([]);
  expect([other.held.size, texts.length]).toEqual([0, 1]);
  const own = store();
  await new Journal("relserve", texts).recover(own);
  expect([[...own.held.values()].map(({ rows }) => rows), texts.length]).toEqual([[[["typed"]]], 0]);
});

test("what a full store does not take waits for the next page, and what cannot be read stops none", async () => {
  const texts = left(sheet);
  texts.setItem("relserve-unsaved-0", "{");
  const full = { get: async () => undefined, put: () => Promise.reject(new Error("QuotaExceededError")) };
  expect(await new Journal("relserve", texts).recover(full)).toEqual([]);
  expect(texts.length).toBe(1);
  const kept = store();
  expect(await new Journal("relserve", texts).recover(kept)).toEqual(["S (unsaved)"]);
  expect(texts.length).toBe(0);
});

test("a write counts once its transaction has ended, not when it was taken", async () => {
  const transaction = { oncomplete: () => undefined, onabort: () => undefined, error: new Error("QuotaExceededError") };
  const wait = () => committed(transaction as unknown as IDBTransaction).then(() => "written", ({ message }: Error) => message);
  const good = wait();
  transaction.oncomplete();
  const bad = wait();
  transaction.onabort();
  expect([await good, await bad]).toEqual(["written", "QuotaExceededError"]);
});

test("another tenant's sheets are in another store, and come back with it", () => {
  const texts = new Texts();
  expect(storesOf(undefined, texts)).toEqual({ sheets: "relserve", marks: "relserve-sync-", scope: undefined });
  expect(storesOf("a1", texts)).toEqual({ sheets: "relserve", marks: "relserve-sync-a1", scope: "a1" });
  expect(storesOf("b2", texts)).toEqual({ sheets: "relserve-b2", marks: "relserve-sync-b2", scope: "b2" });
  expect(storesOf(undefined, texts)).toEqual({ sheets: "relserve-b2", marks: "relserve-sync-b2", scope: "b2" });
  expect(storesOf("a1", texts).sheets).toBe("relserve");
});
