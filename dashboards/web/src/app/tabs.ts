// The sheets of the open workbook: one is in the grid, the others are computed and kept. Each has a history of its own,
// which begins anew when it is shown.

import type { Book, Member } from "../core/book";
import { type Layout, keptLayout, layoutOf } from "../core/layout";
import { type Origins, renamed, restored, stored as storedOrigins } from "../core/origins";
import { renameSheet } from "../core/references";
import type { Change, Sheet } from "../core/sheet";
import { type FurtherSheet, type StoredSheet, UNNAMED } from "../store/sheets";
import { t } from "../text";
import { ask, confirmedDeletion } from "../ui/ask";
import type { Grid } from "../ui/grid";
import type { StepElsewhere } from "../ui/history";
import { TabBar } from "../ui/tab-bar";
import type { Session } from "./session";

/** Most sheets of a workbook. */
export const TABS_MAX = 50;
/** Longest name of a sheet, as in Excel. */
const NAME_MAX = 31;

/** What it needs of the workspace. */
export interface TabsHost {
  session(): Session | undefined;
  edited(): void;
  /** Another sheet is in the grid: the one at a place. */
  shown(place: number): void;
  /** What goes back to the workbook as it stands, and to the sheet at a place. */
  snapshot(place: number): () => void;
  /** Says something, and offers to go back. */
  offer(words: string, back: () => void): void;
  say(words: string): void;
}

/** A sheet with what is not in its cells. */
interface Page {
  member: Member;
  rows: string[][];
  widths: number[];
  layout: Layout;
  origins: Origins;
}

/** What is typed, cell by cell. */
export function cellsOf(rows: readonly (readonly string[])[]): Change[] {
  return rows.flatMap((line, row) => line.flatMap((raw, column) => (raw === "" ? [] : [{ row, column, raw }])));
}

/** What is typed, by row. */
function rowsOf(sheet: Sheet): string[][] {
  const rows: string[][] = [];
  for (const { row, column, raw } of sheet.typed()) {
    while (rows.length <= row) rows.push([]);
    const line = rows[row] as string[];
    while (line.length < column) line.push("");
    line[column] = raw;
  }
  return rows;
}

/** All sheets of a workbook at rest. */
export function sheetsIn(stored: StoredSheet): FurtherSheet[] {
  const { rows, widths, layout, origins, first = UNNAMED, further = [] } = stored;
  return [{ name: first, rows, widths, ...(layout ? { layout } : {}), ...(origins ? { origins } : {}) }, ...further];
}

/** Puts the sheets of a workbook where they are kept; the one of a workbook that has no more is kept as it always was. */
export function keepSheets(stored: StoredSheet, sheets: readonly FurtherSheet[]): void {
  const [first, ...further] = sheets;
  if (!first) return;
  const { rows, widths, layout, origins, name } = first;
  Object.assign(stored, { rows, widths });
  for (const key of ["layout", "origins", "first", "further"] as const) delete stored[key];
  if (layout) stored.layout = layout;
  if (origins) stored.origins = origins;
  if (further.length > 0 || name !== UNNAMED) stored.first = name;
  if (further.length > 0) stored.further = further;
}

/** Keeps with a workbook which model it asks; one that asks the default one says nothing, as it always did. */
export function keepModel(stored: StoredSheet, model: string | undefined): void {
  if (model === undefined) delete stored.model;
  else stored.model = model;
}

/** Why a name is none for a sheet. */
export function refuseName(name: string, taken: readonly string[]): string {
  if (name === "") return t.tabs.needsName;
  if (name.length > NAME_MAX) return t.workbook.nameMax(NAME_MAX);
  if (/[\\/?*[\]:]/.test(name) || name.startsWith("'") || name.endsWith("'")) return t.tabs.signs;
  const isTaken = taken.some((other) => other.toLowerCase() === name.toLowerCase());
  return isTaken ? t.tabs.taken(name) : "";
}

/** The tabs. */
export class Tabs {
  private pages: Page[] = [];
  private at = 0;
  private readonly bar: TabBar;

  constructor(private readonly grid: Grid, private readonly host: TabsHost) {
    this.bar = new TabBar({
      chosen: (index) => this.show(index),
      added: () => this.add(),
      renamed: (index) => void this.rename(index),
      removed: (index) => void this.remove(index),
    });
  }

  /** Loads a workbook into a session; the sheet at a place is shown, where there is one. */
  load(stored: StoredSheet, session: Session, place = 0): void {
    const sheets = sheetsIn(stored);
    session.load(sheets.map(({ name, rows }) => ({ name, cells: cellsOf(rows) })));
    this.pages = sheets.map(({ rows, widths, layout, origins }, i) => ({
      member: session.book.members[i] as Member, rows, widths, layout: layoutOf(layout), origins: restored(origins),
    }));
    this.at = this.pages[place] ? place : 0;
  }

  /** Puts the sheet that is shown into the grid. */
  open(session: Session): void {
    const page = this.pages[this.at];
    if (!page) return;
    session.open(page.member);
    this.grid.open(page.rows, page.widths, page.member.sheet, page.layout);
    this.bar.show(this.names(), this.at);
    this.host.shown(this.at);
  }

  /** Where values of the sheet that is shown come from that stand instead of answers. */
  get origins(): Origins {
    return this.originsOf(this.pages[this.at]?.member.name);
  }

  /** And those of the sheet of a name. */
  originsOf(name: string | undefined): Origins {
    return this.pages.find(({ member }) => member.name === name)?.origins ?? new Map();
  }

  set origins(origins: Origins) {
    const page = this.pages[this.at];
    if (page) page.origins = origins;
  }

  /** How each sheet looks, by its name. */
  looks(): Map<string, { layout: Layout; widths: readonly number[] }> {
    this.take();
    return new Map(this.pages.map(({ member, layout, widths }) => [member.name, { layout, widths }]));
  }

  /** Lays in what another tab of the browser wrote; false where that is more than other cells of one sheet. */
  adopt(stored: StoredSheet, session: Session): boolean {
    const [first, ...further] = sheetsIn(stored);
    const page = this.pages[0];
    const isSame = this.pages.length === 1 && further.length === 0 && first?.name === page?.member.name;
    if (!isSame || !first || JSON.stringify(layoutOf(first.layout)) !== JSON.stringify(this.grid.layout)) return false;
    session.set(this.grid.adopt(first.rows, first.widths));
    this.origins = restored(first.origins);
    return true;
  }

  /** Lays a workbook into what is kept of it. */
  store(stored: StoredSheet): void {
    this.take();
    keepSheets(stored, this.pages.map(({ member, rows, widths, layout, origins }) => {
      const kept = keptLayout(layout);
      const from = origins.size > 0 ? { origins: storedOrigins(origins) } : {};
      return { name: member.name, rows, widths, ...(kept ? { layout: kept } : {}), ...from };
    }));
  }

  /** Shows a sheet. */
  show(index: number): void {
    const session = this.host.session();
    if (!session || index === this.at || !this.pages[index]) return;
    this.grid.finishEdit();
    this.take();
    this.at = index;
    this.open(session);
    this.grid.focus();
  }

  /** Changes cells of other sheets along with a step of the one that is shown. */
  follow(steps: readonly StepElsewhere[], isForward: boolean): void {
    this.host.session()?.change((book) => {
      for (const { sheet, cells, origins } of steps) {
        const page = this.pages.find(({ member }) => member.name === sheet);
        if (page) page.origins = isForward ? origins.after : origins.before;
        const changes = cells.map(({ row, column, before, after }) => ({ row, column, raw: isForward ? after : before }));
        book.named(sheet)?.sheet.set(changes);
      }
    });
    this.reread();
  }

  /** Takes what is in the grid. */
  private take(): void {
    const page = this.pages[this.at];
    if (!page) return;
    Object.assign(page, { rows: this.grid.rows(), widths: this.grid.widths(), layout: this.grid.layout });
  }

  /** Takes what is typed in the sheets behind from where it is computed. */
  private reread(): void {
    for (const [i, page] of this.pages.entries()) if (i !== this.at) page.rows = rowsOf(page.member.sheet);
  }

  private names(): string[] {
    return this.pages.map(({ member }) => member.name);
  }

  private add(): void {
    const session = this.host.session();
    if (!session) return;
    if (this.pages.length >= TABS_MAX) return this.host.say(t.tabs.most(TABS_MAX));
    let number = this.pages.length + 1;
    while (refuseName(t.workbook.tab(number), this.names()) !== "") number += 1;
    session.change((book) => {
      this.pages.push({ member: book.add(t.workbook.tab(number)), rows: [], widths: [], layout: layoutOf(undefined), origins: new Map() });
    });
    this.show(this.pages.length - 1);
    this.host.edited();
  }

  private async rename(index: number): Promise<void> {
    const page = this.pages[index];
    const before = page?.member.name ?? "";
    const others = this.names().filter((_, i) => i !== index);
    const name = await ask(t.tabs.renameTitle, t.workbook.newName, before, (text) => refuseName(text, others));
    // Another workbook may have been opened from another tab of the browser meanwhile.
    if (!page || !this.pages.includes(page) || name === undefined || name === before) return;
    this.rewrite((raw) => renameSheet(raw, before, name), (book) => book.rename(page.member, name));
    this.bar.show(this.names(), this.at);
    this.host.edited();
  }

  private async remove(asked: number): Promise<void> {
    const page = this.pages[asked];
    if (!page || this.pages.length === 1) return this.host.say(t.tabs.least);
    const { name } = page.member;
    if (!(await confirmedDeletion(t.tabs.deleteTitle(name)))) return;
    const index = this.pages.indexOf(page);
    if (index < 0 || this.pages.length === 1 || !this.host.session()) return;
    const back = this.host.snapshot(index);
    if (index === this.at) this.show(index === 0 ? 1 : index - 1);
    this.pages.splice(index, 1);
    if (index < this.at) this.at -= 1;
    this.rewrite((raw) => renameSheet(raw, name, undefined), (book) => book.remove(page.member));
    this.bar.show(this.names(), this.at);
    this.host.edited();
    this.host.offer(t.tabs.deleted(name), back);
  }

  /** Writes formulas of all sheets anew, after something was done to the list of sheets. */
  private rewrite(change: (raw: string) => string, done: (book: Book) => void): void {
    const session = this.host.session();
    if (!session) return;
    this.take();
    const shown = this.pages[this.at];
    session.change((book) => {
      done(book);
      for (const page of this.pages) {
        page.origins = renamed(page.origins, change);
        const changes = cellsOf(page.rows).flatMap(({ row, column, raw }) => {
          const after = change(raw);
          return after === raw ? [] : [{ row, column, raw: after }];
        });
        if (changes.length === 0) continue;
        page.member.sheet.set(changes);
        page.rows = rowsOf(page.member.sheet);
      }
    });
    // Steps of its history would bring formulas back that name what is not there, into this sheet or into others.
    if (shown) session.set(this.grid.adopt(shown.rows, shown.widths));
  }
}
