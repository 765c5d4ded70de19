// Writes sheets that other tabs may write too: one write at a time, each on top of the version that this tab
// knows. An edit that comes second goes on under a name of its own, so that no tab writes over what another
// wrote.

import type { StoredSheet } from "../store/sheets";
import { t } from "../text";

/** Where sheets are written, each with the number of its version. */
export interface VersionedStore {
  /** A sheet as it is now; none where it was deleted. */
  get(id: string): Promise<StoredSheet | undefined>;
  /** Writes a sheet if version `base` is there; false where another tab wrote since. */
  put(sheet: StoredSheet, base: number): Promise<boolean>;
}

/** What the writer tells. */
export interface WriterEvents {
  /** Edits are in the store. */
  wrote(id: string): void;
  /** Another tab was first, `other` is what it left: the sheet needs an identifier of its own, from version 0 on. */
  conflicted(sheet: StoredSheet, other: StoredSheet | undefined): void;
  /** The store took all that was edited. */
  settled(): void;
  failed(error: unknown): void;
}

/** A sheet as it was when it was to be saved, on top of the version in it. */
interface Job {
  sheet: StoredSheet;
  state: StoredSheet;
  edits: number;
}

/** Writes of this tab, in order. */
export class SheetWriter {
  /** Edits that are not in the store. */
  private readonly edits = new Map<StoredSheet, number>();
  /** At most one a sheet, behind the one that is being written. */
  private queue: Job[] = [];
  private writing: Promise<void> | undefined;

  constructor(private readonly store: VersionedStore, private readonly events: WriterEvents) {}

  /** Notes an edit; `save` writes it. */
  edited(sheet: StoredSheet): void {
    this.edits.set(sheet, (this.edits.get(sheet) ?? 0) + 1);
  }

  /** Whether something of a sheet is not in the store. */
  hasUnsaved(sheet: StoredSheet): boolean {
    return this.edits.has(sheet);
  }

  /** Writes a sheet as it stands, and waits until it is written. Without an edit only its usage is new, which makes no version. */
  async save(sheet: StoredSheet): Promise<void> {
    this.forgetJob(sheet);
    this.queue.push({ sheet, state: structuredClone(sheet), edits: this.edits.get(sheet) ?? 0 });
    this.writing ??= this.writeAll();
    await this.writing;
  }

  private async writeAll(): Promise<void> {
    for (let job = this.queue.shift(); job; job = this.queue.shift()) {
      await this.write(job).catch((error: unknown) => this.events.failed(error));
    }
    this.writing = undefined;
    if (this.edits.size === 0) this.events.settled();
  }

  /** Writes no more of a sheet that is deleted. */
  forget(sheet: StoredSheet): void {
    this.forgetJob(sheet);
    this.edits.delete(sheet);
  }

  private forgetJob(sheet: StoredSheet): void {
    this.queue = this.queue.filter((job) => job.sheet !== sheet);
  }

  private async write({ sheet, state, edits }: Job): Promise<void> {
    const base = state.version;
    const version = edits > 0 ? base + 1 : base;
    if (await this.store.put({ ...state, version }, base)) {
      this.advance(sheet, base, version);
      this.settle(sheet, edits);
      if (edits > 0) this.events.wrote(state.id);
    } else if (this.edits.has(sheet)) {
      const other = await this.store.get(state.id);
      this.events.conflicted(sheet, other);
      this.forgetJob(sheet);
      this.queue.push({ sheet, state: structuredClone(sheet), edits: this.edits.get(sheet) ?? 0 });
    }
  }

  /** What this tab wrote is what its next write stands on. */
  private advance(sheet: StoredSheet, base: number, version: number): void {
    if (sheet.version === base) sheet.version = version;
    for (const { sheet: waiting, state } of this.queue) {
      if (waiting === sheet && state.version === base) state.version = version;
    }
  }

  private settle(sheet: StoredSheet, edits: number): void {
    const left = (this.edits.get(sheet) ?? 0) - edits;
    if (left > 0) this.edits.set(sheet, left);
    else this.edits.delete(sheet);
    for (const job of this.queue) if (job.sheet === sheet) job.edits -= edits;
  }
}

/** A name for a new workbook that none has. */
export function freeName(taken: readonly string[]): string {
  for (let number = 1; ; number += 1) {
    const name = t.workbook.name(number);
    if (!taken.includes(name)) return name;
  }
}

/** Whether a name is one that a new workbook gets, and nobody has chosen. */
export function isGivenName(name: string): boolean {
  const number = /\d+$/.exec(name)?.[0];
  return number !== undefined && t.workbook.name(Number(number)) === name;
}

/** A name for a copy that no sheet has. */
export function copyName(name: string, taken: readonly string[]): string {
  for (let number = 1; ; number += 1) {
    const copy = number === 1 ? t.workbook.copy(name) : t.workbook.copyNumber(name, number);
    if (!taken.includes(copy)) return copy;
  }
}
