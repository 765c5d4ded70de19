// What was typed when the page went, and the browser's database had not taken yet: written at once, where the database
// answers too late, and put into it by the next page.

import type { VersionedStore } from "../app/sheet-writer";
import { type StoredSheet, identifier } from "./sheets";

const PREFIX = "relserve-unsaved-";
/** Each tab has an entry of its own. */
const OWN = PREFIX + identifier();

/** Keeps a sheet as it is now; on top of the version in it. False where the browser has no room for it. */
export function keepUnsaved(sheet: StoredSheet, storage: Storage = localStorage): boolean {
  try {
    storage.setItem(OWN, JSON.stringify(sheet));
    return true;
  } catch {
    return false;
  }
}

/** Forgets it: the database has it. */
export function dropUnsaved(storage: Storage = localStorage): void {
  storage.removeItem(OWN);
}

/** Puts what earlier pages left into the store; gives the names of those that had to become copies. */
export async function recover(store: VersionedStore, storage: Storage = localStorage): Promise<string[]> {
  const copies: string[] = [];
  const left = Array.from({ length: storage.length }, (_, at) => storage.key(at) ?? "");
  for (const key of left.filter((name) => name.startsWith(PREFIX) && name !== OWN)) {
    const text = storage.getItem(key);
    storage.removeItem(key);
    if (text === null) continue;
    const sheet = JSON.parse(text) as StoredSheet;
    const there = await store.get(sheet.id);
    // The database took it after all.
    if (there && isSame(there, sheet)) continue;
    if (await store.put({ ...sheet, version: sheet.version + 1 }, sheet.version)) continue;
    const copy = { ...sheet, id: identifier(), name: `${sheet.name} (unsaved)`, version: 1 };
    if (await store.put(copy, 0)) copies.push(copy.name);
  }
  return copies;
}

function isSame(one: StoredSheet, other: StoredSheet): boolean {
  const cells = ({ name, rows, widths, layout, first, further }: StoredSheet) =>
    JSON.stringify([name, rows, widths, layout, first, further]);
  return cells(one) === cells(other);
}
