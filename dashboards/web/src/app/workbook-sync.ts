// Keeps the sheets of this browser and the workbooks of the server alike. What was typed is in the browser first, so the
// page works without a server; a save names the version that it stands on, and where both sides changed, both are kept:
// the sheet becomes the server's, and what was done here goes on as a copy.

import type { StoredSheet } from "../store/sheets";
import { t } from "../text";
import { reason } from "./reason";
import { copyName, freeName, isGivenName } from "./sheet-writer";

/** A sheet of a workbook, as it is shown. */
export interface ShownSheet {
  name: string;
  rows: string[][];
}

/** What the server keeps of a sheet: all of it but its name and what is of this browser alone. */
export interface WorkbookContent extends Record<string, unknown> {
  rows: string[][];
  widths: number[];
  /** Its sheets as they were shown, for readers who cannot ask the model. */
  shown?: ShownSheet[];
}

/** A workbook of the server. */
export interface WorkbookSummary {
  id: string;
  name: string;
  version: number;
}

/** A workbook with what was saved. */
export interface WorkbookRead {
  name: string;
  version: number;
  content: WorkbookContent;
}

/** What became of a save: kept as a version, refused since another was saved meanwhile, or since the workbook is gone. */
export type SaveOutcome = { version: number } | "stale" | "gone";

/** How a workbook is saved. */
export interface SaveOptions {
  /** The page is about to go. */
  keepalive?: boolean;
  /** The version stays as it is: the next save, however soon, is another. */
  closesVersion?: boolean;
}

/** The server's side. Each call throws where the server cannot be reached or refuses. */
export interface WorkbookServer {
  list(): Promise<WorkbookSummary[]>;
  read(id: string): Promise<WorkbookRead | undefined>;
  /** Saves on top of version `base`, 0 of a new workbook. */
  save(id: string, name: string, content: WorkbookContent, base: number, options?: SaveOptions): Promise<SaveOutcome>;
  /** Deletes it, if this is its newest version still. */
  remove(id: string, version: number): Promise<void>;
}

/** The browser's side. */
export interface LocalSheets {
  list(): Promise<StoredSheet[]>;
  /** Writes a sheet if version `base` is there; false where something else was written since. */
  put(sheet: StoredSheet, base: number): Promise<boolean>;
  remove(id: string): Promise<void>;
}

/** The version of the server at which a sheet of this browser, at its version, was the same. */
export interface SyncMark {
  id: string;
  remote: number;
  local: number;
}

/** Where marks are kept. A mark without a sheet says that the sheet was deleted here. */
export interface SyncMarks {
  all(): Promise<SyncMark[]>;
  put(mark: SyncMark): Promise<void>;
  remove(id: string): Promise<void>;
}

/** What the page is told. */
export interface SyncEvents {
  /** The browser has another version of a sheet now, or none any more; in words where people should know. */
  changed(id: string, words: string): void;
  /** Both sides changed a sheet: it is the server's now, `copy` has what was done here. */
  conflicted(id: string, copy: StoredSheet, words: string): void;
  /** A sheet that the server never had has a name that nobody chose, and another has it: gives whether it gets the free one, by an edit. */
  nameTaken(id: string, free: string): boolean;
  /** Something to know that changes no sheet. */
  said(words: string): void;
  /** How a sheet is shown; undefined where it is not open. */
  shown(id: string): ShownSheet[] | undefined;
  /** All is on the server (""), or why not. */
  state(problem: string): void;
}

/** Characters of a save that browsers let go on when the page goes; they take 64 KiB. */
const KEEPALIVE_CHARACTERS_MAX = 30_000;

/** Versions of a sheet that are remembered as sent: a server that refuses one gets the next with each edit. */
const SENT_MAX = 3;

/** The sheet as the server keeps it. */
export function contentOf(sheet: StoredSheet, shown: ShownSheet[] | undefined): WorkbookContent {
  const { id: _id, name: _name, version: _version, updated: _updated, usage: _usage, calledOff: _calledOff, ...content } = sheet;
  return { ...content, ...(shown ? { shown } : {}) };
}

/** A workbook of the server as a sheet of the browser, in place of one, or new. */
export function sheetOf(
  id: string, read: WorkbookRead, before: Pick<StoredSheet, "usage" | "version" | "calledOff">, now: number,
): StoredSheet {
  const { shown: _shown, calledOff: _calledOff, ...content } = read.content;
  const off = before.calledOff ? { calledOff: before.calledOff } : {};
  return { ...content, id, name: read.name, usage: before.usage, version: before.version + 1, updated: now, ...off };
}

/** Whether two have the same cells under the same name, however they are shown. */
function isSame(sheet: StoredSheet, read: WorkbookRead): boolean {
  const { shown: _shown, ...there } = read.content;
  return sheet.name === read.name && JSON.stringify(contentOf(sheet, undefined)) === JSON.stringify(there);
}

/** Whether nothing was typed into a sheet yet. */
export function isBlank(sheet: StoredSheet): boolean {
  return !sheet.further && sheet.rows.every((row) => row.every((raw) => raw === ""));
}

/** Both sides of a sheet. */
interface Sides {
  sheet: StoredSheet | undefined;
  mark: SyncMark | undefined;
  there: WorkbookSummary | undefined;
}

/** The synchronisation of one page. */
export class WorkbookSync {
  private running: Promise<void> | undefined;
  private isWanted = false;
  /** Sheets whose cells may be shown otherwise than the server has them. */
  private readonly reshown = new Set<string>();
  /** Sheets whose version on the server is to stay as it is. */
  private readonly closing = new Set<string>();
  private problem = "";
  /** What the server had at the last round, if that was a good one. */
  private seen = "";
  /** What is known of both sides since the last round: a page that goes has no time to look. */
  private known: SyncMark[] = [];
  /** What was sent of a sheet, by its version, and not heard of: the server may have it all the same. */
  private readonly sent = new Map<string, Map<number, StoredSheet>>();

  constructor(
    private readonly server: WorkbookServer,
    private readonly local: LocalSheets,
    private readonly marks: SyncMarks,
    private readonly events: SyncEvents,
    private readonly host: {
      now(): number;
      identifier(): string;
      noUsage(): StoredSheet["usage"];
      /** Runs while no other tab of this browser does; two would take each other for another machine. */
      alone(run: () => Promise<void>): Promise<void>;
      sheetsMax: number;
    },
  ) {}

  /** Brings both sides together, now or right after the run that goes on. Resolves when nothing is left to do. */
  async run(): Promise<void> {
    this.isWanted = true;
    this.running ??= this.rounds().finally(() => {
      this.running = undefined;
    });
    await this.running;
  }

  /** Looks for what other machines did. Where that is nothing, the sheets of this browser, which may be large, are not read. */
  async look(): Promise<void> {
    if (this.running || this.seen === "") return this.run();
    const there = await this.server.list().catch(() => undefined);
    if (JSON.stringify(there) !== this.seen) await this.run();
  }

  private async rounds(): Promise<void> {
    while (this.isWanted) {
      this.isWanted = false;
      await this.host.alone(() => this.round()).catch((error: unknown) => {
        this.problem = reason(error);
      });
      if (this.problem) this.seen = "";
    }
    this.events.state(this.problem);
  }

  /** Has the server keep a sheet as it is now, whatever is saved next; throws where that failed. */
  async closeVersion(id: string): Promise<void> {
    this.closing.add(id);
    await this.run();
    if (this.closing.delete(id)) throw new Error(this.problem || t.failure.notSaved);
  }

  /**
   * Has the server keep a sheet as the browser has it; throws where it does not. Gives whether there is anything to keep: an
   * empty sheet that the server never had is none.
   */
  async keep(id: string): Promise<boolean> {
    await this.run();
    const [sheets, marks] = await Promise.all([this.local.list(), this.marks.all()]);
    const [sheet, mark] = [sheets.find((one) => one.id === id), marks.find((one) => one.id === id)];
    if (!mark && sheet && isBlank(sheet)) return false;
    if (!mark || mark.local !== sheet?.version) throw new Error(this.problem || t.failure.notSaved);
    return true;
  }

  /** Notes that answers came to a sheet: the next run saves how it is shown. */
  answered(id: string): void {
    this.reshown.add(id);
  }

  /** Sends a sheet that is about to be lost from the page's memory. Nothing waits for the reply: the next page does. */
  async flush(sheet: StoredSheet): Promise<void> {
    const mark = this.known.find(({ id }) => id === sheet.id);
    const content = contentOf(sheet, this.events.shown(sheet.id));
    if (JSON.stringify(content).length > KEEPALIVE_CHARACTERS_MAX) return;
    this.sends(sheet);
    await this.server.save(sheet.id, sheet.name, content, mark?.remote ?? 0, { keepalive: true });
  }

  private async round(): Promise<void> {
    this.problem = "";
    const [there, sheets, marks] = await Promise.all([this.server.list(), this.local.list(), this.marks.all()]);
    this.known = marks;
    this.seen = JSON.stringify(there);
    const ids = new Set([...sheets, ...marks, ...there].map(({ id }) => id));
    let left = this.host.sheetsMax - sheets.length;
    for (const id of ids) {
      const find = <T extends { id: string }>(all: T[]) => all.find((one) => one.id === id);
      const sides: Sides = { sheet: find(sheets), mark: find(marks), there: find(there) };
      const isNew = !sides.sheet && !sides.mark;
      if (isNew && left <= 0) continue;
      if (isNew) left -= 1;
      if (this.getsFreeName(sides, [...sheets, ...there])) continue;
      await this.bringTogether(id, sides, sheets).catch((error: unknown) => {
        // One sheet that the server refuses keeps no other from it.
        this.problem = reason(error);
      });
    }
  }

  /** Whether a sheet that is to be saved for the first time is renamed before, which saves it again. */
  private getsFreeName({ sheet, mark, there }: Sides, all: readonly { id: string; name: string }[]): boolean {
    if (!sheet || mark || there || isBlank(sheet) || !isGivenName(sheet.name)) return false;
    const taken = all.filter(({ id }) => id !== sheet.id).map(({ name }) => name);
    return taken.includes(sheet.name) && this.events.nameTaken(sheet.id, freeName(taken));
  }

  private async bringTogether(id: string, { sheet, mark, there }: Sides, sheets: StoredSheet[]): Promise<void> {
    if (!sheet) {
      if (there && mark && there.version === mark.remote) await this.server.remove(id, there.version);
      else if (there) await this.fetch(id, mark !== undefined);
      if (!there || mark?.remote === there.version) await this.marks.remove(id);
      return;
    }
    // The empty sheet that every browser begins with.
    if (!mark && !there && isBlank(sheet)) return;
    const isEdited = !mark || mark.local !== sheet.version;
    if (!there && mark && !isEdited) return this.forget(sheet);
    if (there && mark && there.version !== mark.remote && !isEdited) return this.adopt(sheet);
    if (!isEdited && !this.reshown.has(id) && !this.closing.has(id)) return;
    // What the server would refuse is not sent.
    if (there && there.version !== mark?.remote) return this.settle(sheet, sheets);
    await this.save(sheet, there?.version ?? 0, sheets);
    if (mark && !there) this.events.said(t.workbook.deletedButKept(sheet.name));
  }

  /** Saves a sheet on top of the version that it stands on. */
  private async save(sheet: StoredSheet, base: number, sheets: StoredSheet[]): Promise<void> {
    const content = contentOf(sheet, this.events.shown(sheet.id));
    const options = this.closing.has(sheet.id) ? { closesVersion: true } : {};
    this.sends(sheet);
    const outcome = await this.server.save(sheet.id, sheet.name, content, base, options);
    this.reshown.delete(sheet.id);
    if (outcome === "gone") this.isWanted = true;
    else if (outcome === "stale") await this.settle(sheet, sheets);
    else {
      this.closing.delete(sheet.id);
      await this.standsOn(sheet, outcome.version);
    }
  }

  private sends(sheet: StoredSheet): void {
    const sent = this.sent.get(sheet.id) ?? new Map<number, StoredSheet>();
    this.sent.set(sheet.id, sent.set(sheet.version, structuredClone(sheet)));
    for (const oldest of sent.keys()) if (sent.size > SENT_MAX) sent.delete(oldest);
  }

  /** A sheet of this browser, at its version, is the server's of a version. */
  private async standsOn({ id, version }: StoredSheet, remote: number): Promise<void> {
    this.sent.delete(id);
    await this.marks.put({ id, remote, local: version });
  }

  /** The server has another version than the one that an edit stands on. */
  private async settle(sheet: StoredSheet, sheets: StoredSheet[]): Promise<void> {
    const read = await this.server.read(sheet.id);
    if (!read) {
      this.isWanted = true;
      return;
    }
    // Another tab saved it, or this one did and never heard so; what was typed since stands on that.
    const saved = [sheet, ...(this.sent.get(sheet.id)?.values() ?? [])].find((one) => isSame(one, read));
    if (saved) {
      this.isWanted ||= saved !== sheet;
      await this.standsOn(saved, read.version);
      return;
    }
    const name = copyName(sheet.name, sheets.map((one) => one.name));
    const copy = { ...structuredClone(sheet), id: this.host.identifier(), name, version: 1 };
    const theirs = sheetOf(sheet.id, read, sheet, this.host.now());
    await this.local.put(copy, 0);
    let isTheirs = false;
    try {
      isTheirs = await this.local.put(theirs, sheet.version);
    } finally {
      // Something was typed meanwhile, or a full browser takes no more: each later round would leave a copy.
      if (!isTheirs) await this.local.remove(copy.id);
    }
    if (!isTheirs) {
      this.isWanted = true;
      return;
    }
    await this.standsOn(theirs, read.version);
    sheets.push(copy);
    const words = t.workbook.conflictElsewhere(sheet.name, name);
    this.events.conflicted(sheet.id, copy, words);
    this.isWanted = true;
  }

  /** Takes a workbook of the server that this browser does not have. */
  private async fetch(id: string, isBack: boolean): Promise<void> {
    const read = await this.server.read(id);
    if (!read) return;
    const sheet = sheetOf(id, read, { usage: this.host.noUsage(), version: 0 }, this.host.now());
    if (!(await this.local.put(sheet, 0))) return;
    await this.standsOn(sheet, read.version);
    this.events.changed(id, isBack ? t.workbook.backFromElsewhere(sheet.name) : "");
  }

  /** Takes the server's version of a sheet that was not edited here. */
  private async adopt(sheet: StoredSheet): Promise<void> {
    const read = await this.server.read(sheet.id);
    if (!read) return;
    // Answers came to it elsewhere, and no more.
    if (isSame(sheet, read)) return this.standsOn(sheet, read.version);
    const theirs = sheetOf(sheet.id, read, sheet, this.host.now());
    if (!(await this.local.put(theirs, sheet.version))) {
      this.isWanted = true;
      return;
    }
    await this.standsOn(theirs, read.version);
    this.events.changed(sheet.id, t.workbook.changedElsewhere(sheet.name));
  }

  /** Drops a sheet that was deleted elsewhere and not edited here. */
  private async forget(sheet: StoredSheet): Promise<void> {
    await this.local.remove(sheet.id);
    await this.marks.remove(sheet.id);
    this.events.changed(sheet.id, t.workbook.deletedElsewhere(sheet.name));
  }
}
