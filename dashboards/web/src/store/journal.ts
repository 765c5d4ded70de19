// What was typed when the page went, and the browser's database had not taken yet: written at once, where the database
// answers too late, and put into it by the next page.

import type { VersionedStore } from "../app/sheet-writer";
import { t } from "../text";
import { type StoredSheet, identifier } from "./sheets";

/** What the pages of a store of sheets leave: another tenant's page does not find it. */
export class Journal {
  private readonly prefix: string;
  /** Each tab has an entry of its own. */
  private readonly own: string;

  constructor(store: string, private readonly storage: Storage = localStorage) {
    this.prefix = `${store}-unsaved-`;
    this.own = this.prefix + identifier();
  }

  /** Keeps a sheet as it is now; on top of the version in it. False where the browser has no room for it. */
  keep(sheet: StoredSheet): boolean {
    try {
      this.storage.setItem(this.own, JSON.stringify(sheet));
      return true;
    } catch {
      return false;
    }
  }

  /** Forgets it: the database has it. */
  drop(): void {
    this.storage.removeItem(this.own);
  }

  /**
   * Puts what earlier pages left into the store; gives the names of those that had to become copies. What the store does
   * not take, since it is full, waits for the next page.
   */
  async recover(store: VersionedStore): Promise<string[]> {
    const copies: string[] = [];
    const left = Array.from({ length: this.storage.length }, (_, at) => this.storage.key(at) ?? "");
    for (const key of left.filter((name) => name.startsWith(this.prefix) && name !== this.own)) {
      const sheet = read(this.storage.getItem(key));
      try {
        const copy = sheet && (await putBack(sheet, store));
        if (copy) copies.push(copy);
        this.storage.removeItem(key);
      } catch {
        continue;
      }
    }
    return copies;
  }
}

/** An entry; none where it is gone or cannot be read. */
function read(text: string | null): StoredSheet | undefined {
  try {
    return text === null ? undefined : (JSON.parse(text) as StoredSheet);
  } catch {
    return undefined;
  }
}

/** Puts a sheet into the store; gives its name where it had to become a copy. */
async function putBack(sheet: StoredSheet, store: VersionedStore): Promise<string | undefined> {
  const there = await store.get(sheet.id);
  // The database took it after all.
  if (there && isSame(there, sheet)) return undefined;
  if (await store.put({ ...sheet, version: sheet.version + 1 }, sheet.version)) return undefined;
  const copy = { ...sheet, id: identifier(), name: t.workbook.unsaved(sheet.name), version: 1 };
  return (await store.put(copy, 0)) ? copy.name : undefined;
}

function isSame(one: StoredSheet, other: StoredSheet): boolean {
  const cells = ({ name, rows, widths, layout, first, further }: StoredSheet) =>
    JSON.stringify([name, rows, widths, layout, first, further]);
  return cells(one) === cells(other);
}
