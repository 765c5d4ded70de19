// An open sheet at work: the pure parts (sheet, memory, batcher) joined to a clock, a network and a screen.

import { type Action, Batcher, type Closed, LIMITS } from "relserve-client/batcher";
import type { Answer, Call } from "relserve-client/calls";
import { AnswerCache } from "relserve-client/answer-cache";
import { type Label, type LabelledCall, type LabelledCalls, labelled } from "relserve-client/labels";
import { ServerWatch } from "relserve-client/server-watch";
import { type ServerUsage, type Usage, add } from "relserve-client/usage";
import { CellError } from "relserve-client/value";
import { RequestError } from "relserve-client/wire";

import { type Area, type CellId, rowOf } from "../core/address";
import { Book, type BookCell, type Member } from "../core/book";
import { fingerprintOf } from "../core/origins";
import type { Change, Sheet } from "../core/sheet";
import { t } from "../text";
import { reason } from "./reason";

/** What a session needs of the page. */
export interface SessionHost {
  now(): number;
  /** The date and time as a number, for `TODAY`; where there is none they are errors. */
  clock?(): number;
  /** The model that formulas ask which name none; the server's default one where there is none. */
  model?(): string | undefined;
  /** Calls back after some milliseconds; gives what undoes that. */
  later(milliseconds: number, then: () => void): () => void;
  /** Sends calls; see `runCells`. */
  run(
    calls: LabelledCall[], signal: AbortSignal, onCell: (index: number, answer: Answer) => void, onHeard: () => void,
    labels: Label[], isFresh: boolean,
  ): Promise<ServerUsage>;
  /** What a cell's calls are for. */
  label?: (cell: CellId) => Label;
  /** Whether the server answers at all. */
  probe(): Promise<boolean>;
  /** Asks whether so many calls may go out. */
  allow(calls: Call[]): Promise<boolean>;
  /** Cells look different. */
  paint(cells: Set<CellId>): void;
  /** Progress or usage changed. */
  progress(): void;
  /** The server did not take the key. */
  unauthorized(): void;
}

/** Answers are shown together this often: a column that fills must not redraw for every row. */
const SHOW_MS = 40;
/** Showing takes a fifth of the time at most: on a slow machine a large column fills in fewer, larger steps. */
const SHOW_SHARE = 5;

/** More new calls than this are told with their costs before they go out. */
const FREELY = 1_000;

/** With no answer for so long a server that is there is busy. */
const BUSY_MS = 5_000;
/** What a server answers that takes no more for now. */
const FULL = [429, 503];

/** Why answers that are due do not come from a server that is there: it works on others, or takes no more for now. */
export type Delay = "busy" | "full";

/** What stands in a cell whose call was called off by its user. */
const STOPPED = new CellError("#STOPPED!", t.cell.stopped);

/** An open sheet. */
export class Session {
  readonly book: Book;
  private shown: Member;
  private readonly batcher: Batcher;
  private readonly inFlight = new Map<number, AbortController>();
  private readonly arrived = new Set<BookCell>();
  private stopShow: (() => void) | undefined;
  /** Milliseconds that showing took last. */
  private showTook = 0;
  private stopWake: (() => void) | undefined;
  private readonly watch: ServerWatch;
  /** When an answer came last, or calls went out. */
  private moved = 0;
  /** Whether the server said that it takes no more, and has answered nothing since. */
  private isFull = false;
  private told: Delay | undefined;
  private isClosed = false;
  private isAsking = false;
  /** Calls that the model is to be asked, whatever the server's result cache knows. */
  private readonly fresh = new Set<string>();
  /** Calls that were called off by their user, all together. */
  stopped = 0;

  constructor(
    private readonly host: SessionHost,
    readonly usage: Usage,
    private readonly memory = new AnswerCache(),
    /** What stands for calls that their user called off: they stay so until they are asked for again. */
    readonly calledOff = new Set<string>(),
  ) {
    // What is asked past the server's result cache takes no other call along.
    this.batcher = new Batcher({ ...LIMITS, freely: FREELY }, (key) => this.fresh.has(key));
    this.book = new Book(memory, (cell, calls) => this.batcher.want(cell, calls, host.now()),
      () => host.clock?.() ?? Number.NaN, () => host.model?.());
    this.shown = this.book.add("Sheet1");
    this.watch = new ServerWatch({
      now: () => host.now(), later: (milliseconds, then) => host.later(milliseconds, then), probe: () => host.probe(),
      isOffline: () => this.batcher.isOffline, away: () => this.away(), back: () => this.back(),
      looked: () => this.looked(),
    });
  }

  /** The sheet that is shown: what is typed goes there, and only its cells are painted. */
  get sheet(): Sheet {
    return this.shown.sheet;
  }

  /** Shows another sheet. */
  open(member: Member): void {
    this.shown = member;
  }

  /** Fills a workbook that nothing was typed into: the sheet that is there, and others beside it. */
  load(sheets: readonly { name: string; cells: Iterable<Change> }[]): void {
    const members = sheets.map(({ name }, i) => (i === 0 ? this.shown : this.book.add(name)));
    for (const [i, { name, cells }] of sheets.entries()) {
      const member = members[i] as Member;
      if (member.name !== name) this.book.rename(member, name);
      member.sheet.set(cells);
    }
    this.refresh();
  }

  /** Does something to other sheets than the one that is shown, or to the list of them. */
  change(what: (book: Book) => void): void {
    what(this.book);
    this.book.edited();
    this.refresh();
  }

  /** Cells without an answer, and requests under way. */
  get pending(): { calls: number; requests: number } {
    return { calls: this.batcher.pending, requests: this.batcher.inFlight };
  }

  /** Whether its user keeps back what has no answer. */
  get isPaused(): boolean {
    return this.batcher.isPaused;
  }

  /** Whether the server is away: it is asked until it is back, and then all goes on. */
  get isReconnecting(): boolean {
    return this.batcher.isOffline;
  }

  /** Why nothing comes, where the server is there and something is due. */
  get delay(): Delay | undefined {
    if (this.batcher.pending === 0 || this.isReconnecting || this.isPaused) return undefined;
    if (this.batcher.inFlight === 0) return this.isFull ? "full" : undefined;
    return this.host.now() - this.moved >= BUSY_MS ? "busy" : undefined;
  }

  /** Types into cells. */
  set(changes: Iterable<Change>): void {
    this.sheet.set(changes);
    this.book.edited();
    this.refresh();
  }

  /** Calls off all that has no answer, on the server too; answers that are there stay. */
  stop(): void {
    const { actions, stopped } = this.batcher.stop();
    this.act(actions);
    this.markStopped(stopped);
  }

  /**
   * Keeps back what has no answer, until `resume`. Requests under way are called off on the server: a column is one
   * request, and a pause that let it run to its end would be none. What they have answered stays.
   */
  pause(): void {
    this.act(this.batcher.pause(this.host.now()));
    this.host.progress();
  }

  /** Lets it go on. */
  resume(): void {
    this.batcher.resume();
    this.poll();
    this.host.progress();
  }

  /** How a call stands: its answer, or whether it has gone out. */
  stateOf(key: string): { answer: Answer | undefined; open: "sent" | "waiting" | undefined } {
    return { answer: this.memory.get(key), open: this.batcher.stateOf(key) };
  }

  /** Lets what is open now go out without a question. */
  allow(): void {
    this.batcher.allow();
    this.poll();
  }

  private markStopped(stopped: Closed[]): void {
    this.stopped += stopped.length;
    for (const { key, cells } of stopped) {
      this.fresh.delete(key);
      this.calledOff.add(fingerprintOf(key));
      this.memory.put(key, { error: STOPPED });
      for (const cell of cells) this.arrived.add(cell);
    }
    this.show();
    this.host.progress();
  }

  /** Whether something failed or was stopped, for which `retry` asks again. */
  get hasFailed(): boolean {
    return this.memory.hasFailures;
  }

  /** Asks again what failed or was stopped. */
  retry(): void {
    this.calledOff.clear();
    this.memory.forgetFailures();
    for (const { sheet } of this.book.members) sheet.touchUnfinished();
    this.refresh();
  }

  /** The workbook asks another model: what it says is not what the one before said, which is known still. */
  modelChanged(): void {
    for (const { sheet } of this.book.members) sheet.touchAi();
    this.refresh();
  }

  /** Asks again for the cells of an area that are seen, past the server's result cache; gives how many calls that are. */
  again(area: Area, isHidden: (row: number) => boolean = () => false): number {
    const keys = new Set([...this.sheet.callsIn(area)].flatMap(([id, calls]) =>
      // What somebody typed stands, whatever the model says.
      this.sheet.overrides(id) === undefined && !isHidden(rowOf(id)) ? [...calls.keys()] : []));
    const asked = new Set([...keys].filter((key) => this.batcher.stateOf(key) === undefined));
    for (const key of asked) {
      this.memory.forget(key);
      this.calledOff.delete(fingerprintOf(key));
      this.fresh.add(key);
    }
    // Others that ask the same show the same answer.
    for (const { sheet } of this.book.members) sheet.touchCallers(asked);
    this.refresh();
    return asked.size;
  }

  /** Calls all requests off. */
  close(): void {
    this.isClosed = true;
    this.stopShow?.();
    this.stopWake?.();
    this.watch.close();
    this.act(this.batcher.clear());
  }

  private refresh(): void {
    // A run begins before anything is read for it: what it reads is held until the next one.
    if (this.batcher.pending === 0) this.memory.begin();
    const changed = this.book.recalculate().get(this.shown);
    if (changed && changed.size > 0) this.host.paint(changed);
    this.leaveOff();
    this.poll();
    this.host.progress();
  }

  /** What was called off, by an earlier page too, is neither asked nor asked about. */
  private leaveOff(): void {
    if (this.calledOff.size === 0) return;
    const off = this.batcher.refuse((key) => this.calledOff.has(fingerprintOf(key)));
    if (off.length > 0) this.markStopped(off);
  }

  private poll(): void {
    if (this.isClosed) return;
    this.act(this.batcher.poll(this.host.now()));
    void this.askFirst();
    this.stopWake?.();
    const wake = this.batcher.wake();
    this.stopWake =
      wake === undefined ? undefined : this.host.later(Math.max(0, wake - this.host.now()), () => this.poll());
  }

  /** Asks about calls that are too many to go out by themselves. */
  private async askFirst(): Promise<void> {
    const held = this.isAsking ? [] : this.batcher.held();
    if (held.length === 0) return;
    this.isAsking = true;
    const isAllowed = await this.host.allow(held);
    this.isAsking = false;
    if (this.isClosed) return;
    if (isAllowed) this.allow();
    else this.markStopped(this.batcher.refuse());
  }

  private act(actions: Action[]): void {
    for (const action of actions) {
      if (action.kind === "send") void this.send(action.request, action.keys, this.labelled(action.calls, action.askers));
      else this.inFlight.get(action.request)?.abort();
    }
  }

  private labelled(calls: Call[], askers: (CellId | undefined)[]): LabelledCalls {
    const { label } = this.host;
    return label ? labelled(calls, askers, label) : { calls, labels: [] };
  }

  private async send(request: number, keys: string[], { calls, labels }: LabelledCalls): Promise<void> {
    const abort = new AbortController();
    const started = this.host.now();
    this.inFlight.set(request, abort);
    this.moved = started;
    const watched = this.watch.begin(() => abort.abort(new RequestError(t.client.broke, 0, undefined)));
    this.usage.requests += 1;
    this.usage.asked += keys.length;
    let done = 0;
    try {
      const usage = await this.host.run(calls, abort.signal, (index, answer) => {
        done += 1;
        this.answer(request, index, answer);
      }, () => this.watch.hear(watched), labels, keys.some((key) => this.fresh.has(key)));
      add(this.usage, usage);
      this.end(request, new RequestError(t.failure.leftOut, 500, undefined));
    } catch (error) {
      const reason: unknown = abort.signal.aborted ? abort.signal.reason : error;
      if (reason instanceof RequestError) this.end(request, reason);
      else if (abort.signal.aborted) this.usage.cancelled += keys.length - done;
      else this.end(request, new RequestError(String(error), 500, undefined));
    }
    this.inFlight.delete(request);
    this.usage.lastMs = this.host.now() - started;
    this.usage.totalMs += this.usage.lastMs;
    this.poll();
    this.watch.end(watched);
    this.show();
  }

  private looked(): void {
    if (this.delay !== this.told) this.host.progress();
    this.told = this.delay;
  }

  private away(): void {
    this.batcher.offline();
    this.host.progress();
  }

  private back(): void {
    this.batcher.online();
    this.poll();
    this.host.progress();
  }

  private answer(request: number, index: number, answer: Answer): void {
    this.moved = this.host.now();
    this.isFull = false;
    const closed = this.batcher.answered(request, index);
    if (!closed) return;
    this.take(closed, answer);
  }

  private take({ key, cells }: { key: string; cells: BookCell[] }, answer: Answer): void {
    this.fresh.delete(key);
    if (answer.error) this.usage.failed += 1;
    else this.usage.answered += 1;
    this.memory.put(key, answer);
    for (const cell of cells) this.arrived.add(cell);
    this.show();
  }

  private end(request: number, error: RequestError): void {
    if (error.status === 401) this.host.unauthorized();
    this.isFull = error.again && FULL.includes(error.status);
    const { again, retryAfter, isTooLarge, isUnreachable } = error;
    const failure = { again, retryAfter, isTooLarge, isUnreachable };
    const lost = this.batcher.ended(request, failure, this.host.now());
    for (const closed of lost) this.take(closed, { error: new CellError("#N/A", reason(error)) });
  }

  /** Shows what arrived, soon and together. */
  private show(): void {
    if (this.isClosed) return;
    this.stopShow ??= this.host.later(Math.max(SHOW_MS, (SHOW_SHARE - 1) * this.showTook), () => {
      const began = this.host.now();
      this.stopShow = undefined;
      this.book.touch(this.arrived);
      this.arrived.clear();
      this.refresh();
      this.showTook = this.host.now() - began;
    });
  }
}
