// The sheets of a workbook, computed together: what reads another sheet is computed again when that one has changed.

import type { Call } from "relserve-client/calls";
import type { AnswerCache } from "relserve-client/answer-cache";

import { type CellId, ROWS_MAX, cellId } from "./address";
import type { Clock } from "./date-functions";
import { isSameSheet } from "./references";
import { Sheet } from "./sheet";

/** A cell of any sheet of a workbook. */
export type BookCell = number;

/** A sheet of a workbook. */
export interface Member {
  name: string;
  readonly sheet: Sheet;
  /** Tells its cells from those of other sheets, also of one that is gone. */
  readonly number: number;
}

/** A value that goes through the sheets more often than this goes in a circle. */
const PASSES_MAX = 64;

const STRIDE = cellId(ROWS_MAX, 0);

/** A workbook. */
export class Book {
  private readonly list: Member[] = [];
  private made = 0;

  constructor(
    private readonly memory: AnswerCache,
    private readonly onWants: (cell: BookCell, calls: ReadonlyMap<string, Call>) => void,
    private readonly clock: Clock,
    /** The model that formulas ask which name none. */
    private readonly model: () => string | undefined = () => undefined,
  ) {}

  get members(): readonly Member[] {
    return this.list;
  }

  /** The sheet of a name. */
  named(name: string): Member | undefined {
    return this.list.find((member) => isSameSheet(member.name, name));
  }

  /** Adds an empty sheet at the end. */
  add(name: string): Member {
    const number = this.made;
    this.made += 1;
    const wants = (cell: CellId, calls: ReadonlyMap<string, Call>) => this.onWants(number * STRIDE + cell, calls);
    const around = { other: (other: string) => this.named(other)?.sheet, clock: this.clock, model: this.model };
    const member: Member = { name, number, sheet: new Sheet(this.memory, wants, around) };
    this.list.push(member);
    this.touchReaders(name);
    return member;
  }

  /** Takes a sheet out, with all that it wanted. */
  remove(member: Member): void {
    member.sheet.set([...member.sheet.typed()].map((cell) => ({ ...cell, raw: "" })));
    this.list.splice(this.list.indexOf(member), 1);
    this.touchReaders(member.name);
  }

  /** Gives a sheet another name. What read it under the old one is an error until it is written anew. */
  rename(member: Member, name: string): void {
    const before = member.name;
    member.name = name;
    this.touchReaders(before);
    this.touchReaders(name);
  }

  private touchReaders(name: string): void {
    for (const { sheet } of this.list) sheet.touchReaders(name);
  }

  /** Something was typed: where formulas changed, what was in a circle may be in none now. */
  edited(): void {
    const changed = this.list.filter(({ sheet }) => sheet.tookFormulas());
    if (changed.length > 0) for (const { sheet } of this.list) sheet.joinCircle();
  }

  /** Formulas to compute again, since answers came in. */
  touch(cells: Iterable<BookCell>): void {
    const bySheet = new Map<number, CellId[]>();
    for (const cell of cells) {
      const number = Math.floor(cell / STRIDE);
      const own = bySheet.get(number) ?? [];
      own.push(cell % STRIDE);
      bySheet.set(number, own);
    }
    for (const { number, sheet } of this.list) sheet.touch(bySheet.get(number) ?? []);
  }

  /** Computes what is out of date in all sheets; gives the cells of each that may look different. */
  recalculate(): Map<Member, Set<CellId>> {
    const all = new Map<Member, Set<CellId>>();
    let before = "";
    for (let pass = 0; this.pass(all); pass += 1) {
      // Where a pass leaves just what it began with, each of that depends on another of it.
      const stale = this.list.map(({ sheet }) => sheet.stale().join()).join(";");
      if (stale === before || pass === PASSES_MAX) for (const { sheet } of this.list) sheet.cutCircle();
      before = stale;
    }
    return all;
  }

  /** Computes each sheet once; whether another pass is needed. */
  private pass(all: Map<Member, Set<CellId>>): boolean {
    let isStale = false;
    for (const member of this.list) {
      const changed = member.sheet.recalculate();
      if (changed.size === 0) continue;
      all.set(member, new Set([...(all.get(member) ?? []), ...changed]));
      for (const other of this.list) {
        // Its own formulas may name it too.
        if (other.sheet.touchReaders(member.name, changed)) isStale = true;
      }
    }
    return isStale;
  }
}
