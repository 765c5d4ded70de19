// Sheets in the browser: IndexedDB, bounded in sheets and in cells. Answers are not kept: a reload asks the
// server, whose result cache has them.

import { type Usage, noUsage } from "relserve-client/usage";

import type { Layout } from "../core/layout";
import type { StoredOrigins } from "../core/origins";
import { t } from "../text";
import { committed, finished } from "./indexed";

/** A further sheet of a workbook at rest. */
export interface FurtherSheet {
  name: string;
  rows: string[][];
  widths: number[];
  layout?: Partial<Layout>;
  origins?: StoredOrigins;
}

/** A workbook at rest, with its first sheet; older pages knew no more than that, and read no more of it. */
export interface StoredSheet {
  id: string;
  name: string;
  /** What was typed, by row. */
  rows: string[][];
  widths: number[];
  usage: Usage;
  /** When it was last changed. */
  updated: number;
  /** Writes that changed it, by any tab. */
  version: number;
  /** How the first sheet looks, and its own name. */
  layout?: Partial<Layout>;
  first?: string;
  /** The sheets behind it. */
  further?: FurtherSheet[];
  /** Where values come from that stand instead of answers. */
  origins?: StoredOrigins;
  /** The model that its formulas ask which name none; the server's default one without. */
  model?: string;
  /** What stands for calls that were called off here, and are not asked when it is opened. */
  calledOff?: string[];
}

/** Most sheets, and most typed cells of one. */
export const SHEETS_MAX = 50;
export const CELLS_MAX = 200_000;
/** Longest name of a workbook, in characters. */
export const TITLE_MAX = 80;

/** The store of a browser that has known one server. */
export const NAME = "relserve";
const STORE = "sheets";
/** The sheet that a tab shows, in the tab's own memory. */
const SHOWN = "relserve-sheet";
const SHOWN_TAB = "relserve-shown-tab";

/** The sheets of this browser. */
export class SheetStore {
  private constructor(private readonly database: IDBDatabase) {}

  /** Opens a store, by default the one that this browser has always had. */
  static async open(name = NAME): Promise<SheetStore> {
    const opening = indexedDB.open(name, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: "id" });
    return new SheetStore(await finished(opening));
  }

  /** All sheets, the one changed last first. */
  async list(): Promise<StoredSheet[]> {
    const all = (await finished(this.store().getAll())) as Kept[];
    return all.map(versioned).sort((a, b) => b.updated - a.updated);
  }

  /** A sheet as it is now; none where it was deleted. */
  async get(id: string): Promise<StoredSheet | undefined> {
    const kept = (await finished(this.store().get(id))) as Kept | undefined;
    return kept && versioned(kept);
  }

  /** Keeps a sheet if version `base` is there (0: or none); false where another tab wrote since. One transaction. */
  async put(sheet: StoredSheet, base: number): Promise<boolean> {
    const cells = [sheet, ...(sheet.further ?? [])].flatMap(({ rows }) => rows)
      .reduce((sum, row) => sum + row.filter((raw) => raw !== "").length, 0);
    if (cells > CELLS_MAX) throw new Error(t.failure.cellsMax(CELLS_MAX, cells));
    const transaction = this.database.transaction(STORE, "readwrite");
    const store = transaction.objectStore(STORE);
    const there = (await finished(store.get(sheet.id))) as Kept | undefined;
    if ((there?.version ?? 0) !== base) return false;
    store.put(sheet);
    await committed(transaction);
    return true;
  }

  /** Drops a sheet. */
  async remove(id: string): Promise<void> {
    const transaction = this.database.transaction(STORE, "readwrite");
    transaction.objectStore(STORE).delete(id);
    await committed(transaction);
  }

  private store(): IDBObjectStore {
    return this.database.transaction(STORE).objectStore(STORE);
  }
}

/** A sheet in the store; one that was kept before versions were counted has none. */
type Kept = Omit<StoredSheet, "version"> & { version?: number };

function versioned(kept: Kept): StoredSheet {
  return { ...kept, version: kept.version ?? 0 };
}

/** What a first sheet is called that is kept without a name. */
export const UNNAMED = "Sheet1";

/** A new sheet. */
export function newSheet(name: string, rows: string[][] = [], widths: number[] = []): StoredSheet {
  const first = t.workbook.tab(1);
  const named = first === UNNAMED ? {} : { first };
  return { id: identifier(), name, rows, widths, usage: noUsage(), updated: Date.now(), version: 0, ...named };
}

/** The sheet that this tab showed last. */
export function shownHere(): string | null {
  return sessionStorage.getItem(SHOWN);
}

/** Notes which sheet this tab shows: a reload comes back to it, whatever other tabs have changed. */
export function noteShown(id: string): void {
  sessionStorage.setItem(SHOWN, id);
}

/** Notes which sheet of a workbook this tab shows, by its place. */
export function noteTab(id: string, place: number): void {
  sessionStorage.setItem(SHOWN_TAB, `${place} ${id}`);
}

/** Notes that what this tab shows has another identity now: a reload comes back to the same of its sheets. */
export function noteIdentity(id: string, now: string): void {
  noteTab(now, tabShownHere(id));
  noteShown(now);
}

/** The place of the sheet that this tab showed last of a workbook; the first of one that it showed longer ago. */
export function tabShownHere(id: string): number {
  const [place, of] = (sessionStorage.getItem(SHOWN_TAB) ?? "").split(" ");
  return of === id ? Number(place) : 0;
}

/** `crypto.randomUUID` is only there under HTTPS and on localhost; a gateway may be reached by plain HTTP. */
export function identifier(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
