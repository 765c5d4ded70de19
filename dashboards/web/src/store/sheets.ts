// Sheets in the browser: IndexedDB, bounded in sheets and in cells. Answers are not kept: a reload asks the
// server, whose result cache has them.

import { type Usage, noUsage } from "../core/usage";

/** A sheet at rest. */
export interface StoredSheet {
  id: string;
  name: string;
  /** What was typed, by row. */
  rows: string[][];
  widths: number[];
  usage: Usage;
  /** When it was last changed. */
  updated: number;
}

/** Most sheets, and most typed cells of one. */
export const SHEETS_MAX = 50;
export const CELLS_MAX = 200_000;

const NAME = "relserve";
const STORE = "sheets";

/** The sheets of this browser. */
export class SheetStore {
  private constructor(private readonly database: IDBDatabase) {}

  /** Opens the store. */
  static async open(): Promise<SheetStore> {
    const opening = indexedDB.open(NAME, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: "id" });
    return new SheetStore(await finished(opening));
  }

  /** All sheets, the one changed last first. */
  async list(): Promise<StoredSheet[]> {
    const all = (await finished(this.store("readonly").getAll())) as StoredSheet[];
    return all.sort((a, b) => b.updated - a.updated);
  }

  /** Keeps a sheet. */
  async put(sheet: StoredSheet): Promise<void> {
    const cells = sheet.rows.reduce((sum, row) => sum + row.filter((raw) => raw !== "").length, 0);
    if (cells > CELLS_MAX) throw new Error(`a sheet keeps ${CELLS_MAX} cells at most, this one has ${cells}`);
    await finished(this.store("readwrite").put(sheet));
  }

  /** Drops a sheet. */
  async remove(id: string): Promise<void> {
    await finished(this.store("readwrite").delete(id));
  }

  private store(mode: IDBTransactionMode): IDBObjectStore {
    return this.database.transaction(STORE, mode).objectStore(STORE);
  }
}

function finished<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the browser's store failed"));
  });
}

/** A new sheet. */
export function newSheet(name: string, rows: string[][] = [], widths: number[] = []): StoredSheet {
  return { id: identifier(), name, rows, widths, usage: noUsage(), updated: Date.now() };
}

/** `crypto.randomUUID` is only there under HTTPS and on localhost; a gateway may be reached by plain HTTP. */
function identifier(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
