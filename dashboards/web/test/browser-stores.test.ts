// What a browser keeps between pages: letters that were typed last, and whose sheets are in which store.

import { expect, test } from "vitest";

import { dropUnsaved, keepUnsaved, recover } from "../src/store/journal";
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

/** What an earlier page left, as this one finds it: entries of its own it would take for its own. */
function left(sheet: StoredSheet): Texts {
  const [written, texts] = [new Texts(), new Texts()];
  keepUnsaved(sheet, written);
  texts.setItem("relserve-unsaved-of-an-earlier-page", written.getItem(written.key(0) ?? "") ?? "");
  return texts;
}

const sheet = { ...newSheet("S", [["typed"]]), version: 3 };

test("what was typed when the page went is put on top of what the store has", async () => {
  const kept = store({ ...sheet, rows: [["old"]] });
  const texts = left(sheet);
  expect(await recover(kept, texts)).toEqual([]);
  expect([kept.held.get(sheet.id)?.rows, kept.held.get(sheet.id)?.version, texts.length]).toEqual([[["typed"]], 4, 0]);
});

test("what the store took after all is left alone, and what another tab wrote is not written over", async () => {
  const same = store({ ...sheet, version: 4 });
  expect(await recover(same, left(sheet))).toEqual([]);
  expect([...same.held.values()].map(({ version }) => version)).toEqual([4]);
  const other = store({ ...sheet, rows: [["other"]], version: 5 });
  expect(await recover(other, left(sheet))).toEqual(["S (unsaved)"]);
  expect([...other.held.values()].map(({ name, rows }) => [name, rows])).toEqual([["S", [["other"]]], ["S (unsaved)", [["typed"]]]]);
});

test("a full browser is no error, and what the store took is forgotten", async () => {
  const texts = new Texts();
  texts.room = 10;
  expect(keepUnsaved(sheet, texts)).toBe(false);
  texts.room = Infinity;
  expect(keepUnsaved(sheet, texts)).toBe(true);
  dropUnsaved(texts);
  expect(texts.length).toBe(0);
});

test("another tenant's sheets are in another store, and come back with it", () => {
  const texts = new Texts();
  expect(storesOf(undefined, texts)).toEqual({ sheets: "relserve", marks: "relserve-sync-" });
  expect(storesOf("a1", texts)).toEqual({ sheets: "relserve", marks: "relserve-sync-a1" });
  expect(storesOf("b2", texts)).toEqual({ sheets: "relserve-b2", marks: "relserve-sync-b2" });
  expect(storesOf(undefined, texts)).toEqual({ sheets: "relserve-b2", marks: "relserve-sync-b2" });
  expect(storesOf("a1", texts).sheets).toBe("relserve");
});
