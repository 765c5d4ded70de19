// An open sheet at work: the pure parts (sheet, memory, batcher) joined to a clock, a network and a screen.

import { type Action, Batcher } from "relserve-client/batcher";
import type { Answer, Call } from "relserve-client/calls";
import { AnswerCache } from "relserve-client/answer-cache";
import { type ServerUsage, type Usage, add } from "relserve-client/usage";
import { CellError } from "relserve-client/value";
import { RequestError } from "relserve-client/wire";

import type { CellId } from "../core/address";
import { type Change, Sheet } from "../core/sheet";

/** What a session needs of the page. */
export interface SessionHost {
  now(): number;
  /** Calls back after some milliseconds; gives what undoes that. */
  later(milliseconds: number, then: () => void): () => void;
  /** Sends calls; see `runCells`. */
  run(calls: Call[], signal: AbortSignal, onCell: (index: number, answer: Answer) => void): Promise<ServerUsage>;
  /** Cells look different. */
  paint(cells: Set<CellId>): void;
  /** Progress or usage changed. */
  progress(): void;
  /** The server did not take the key. */
  unauthorized(): void;
}

/** Answers are shown together this often: a column that fills must not redraw for every row. */
const SHOW_MS = 40;

/** An open sheet. */
export class Session {
  readonly sheet: Sheet;
  private readonly batcher: Batcher;
  private readonly inFlight = new Map<number, AbortController>();
  private readonly arrived = new Set<CellId>();
  private stopShow: (() => void) | undefined;
  private stopWake: (() => void) | undefined;
  private isClosed = false;

  constructor(
    private readonly host: SessionHost,
    readonly usage: Usage,
    private readonly memory = new AnswerCache(),
    batcher = new Batcher(),
  ) {
    this.batcher = batcher;
    this.sheet = new Sheet(memory, (cell, calls) => this.batcher.want(cell, calls, host.now()));
  }

  /** Cells without an answer, and requests under way. */
  get pending(): { calls: number; requests: number } {
    return { calls: this.batcher.pending, requests: this.batcher.inFlight };
  }

  /** Types into cells. */
  set(changes: Iterable<Change>): void {
    this.sheet.set(changes);
    this.refresh();
  }

  /** Asks again what failed. */
  retry(): void {
    this.memory.forgetFailures();
    this.sheet.touchUnfinished();
    this.refresh();
  }

  /** Calls all requests off. */
  close(): void {
    this.isClosed = true;
    this.stopShow?.();
    this.stopWake?.();
    this.act(this.batcher.clear());
  }

  private refresh(): void {
    const changed = this.sheet.recalculate();
    if (changed.size > 0) this.host.paint(changed);
    this.poll();
    this.host.progress();
  }

  private poll(): void {
    if (this.isClosed) return;
    this.act(this.batcher.poll(this.host.now()));
    this.stopWake?.();
    const wake = this.batcher.wake();
    this.stopWake =
      wake === undefined ? undefined : this.host.later(Math.max(0, wake - this.host.now()), () => this.poll());
  }

  private act(actions: Action[]): void {
    for (const action of actions) {
      if (action.kind === "send") void this.send(action.request, action.keys, action.calls);
      else this.inFlight.get(action.request)?.abort();
    }
  }

  private async send(request: number, keys: string[], calls: Call[]): Promise<void> {
    const abort = new AbortController();
    this.inFlight.set(request, abort);
    const started = this.host.now();
    this.usage.requests += 1;
    this.usage.asked += keys.length;
    let done = 0;
    try {
      const usage = await this.host.run(calls, abort.signal, (index, answer) => {
        done += 1;
        this.answer(request, index, answer);
      });
      add(this.usage, usage);
      this.end(request, new RequestError("the server left the cell out", 500, undefined));
    } catch (error) {
      if (abort.signal.aborted) this.usage.cancelled += keys.length - done;
      else this.end(request, error instanceof RequestError ? error : new RequestError(String(error), 500, undefined));
    }
    this.inFlight.delete(request);
    this.usage.lastMs = this.host.now() - started;
    this.usage.totalMs += this.usage.lastMs;
    this.poll();
    this.show();
  }

  private answer(request: number, index: number, answer: Answer): void {
    const closed = this.batcher.answered(request, index);
    if (!closed) return;
    this.take(closed, answer);
  }

  private take({ key, cells }: { key: string; cells: CellId[] }, answer: Answer): void {
    if (answer.error) this.usage.failed += 1;
    else this.usage.answered += 1;
    this.memory.put(key, answer);
    for (const cell of cells) this.arrived.add(cell);
    this.show();
  }

  private end(request: number, error: RequestError): void {
    if (error.status === 401) this.host.unauthorized();
    const failure = { again: error.again, retryAfter: error.retryAfter, isTooLarge: error.isTooLarge };
    const lost = this.batcher.ended(request, failure, this.host.now());
    for (const closed of lost) this.take(closed, { error: new CellError("#N/A", error.message) });
  }

  /** Shows what arrived, soon and together. */
  private show(): void {
    if (this.isClosed) return;
    this.stopShow ??= this.host.later(SHOW_MS, () => {
      this.stopShow = undefined;
      this.sheet.touch(this.arrived);
      this.arrived.clear();
      this.refresh();
    });
  }
}
