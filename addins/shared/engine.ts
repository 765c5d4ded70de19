// All formulas of the workbook, and the columns of a pane, at work: what they ask is collected, asked once, and shown as it
// comes.
//
// The batcher is the web page's: new calls wait 100 ms and go out together, equal calls are asked once, and a request
// that no formula wants any more is dropped. Excel tells of a formula that goes and of the one that takes its place in
// either order, so a formula that goes is let go of only after that window: what both ask is not asked twice.

import { type Action, Batcher, type Closed, LIMITS, type Limits } from "relserve-client/batcher";
import type { Answer, Call } from "relserve-client/calls";
import { AnswerCache } from "relserve-client/answer-cache";
import type { RunState } from "relserve-client/run-progress";
import { ServerWatch } from "relserve-client/server-watch";
import { type ServerUsage, type Usage, add, noUsage } from "relserve-client/usage";
import { CellError, PENDING, type Value, isMatrix } from "relserve-client/value";
import { RequestError } from "relserve-client/wire";

import { type Question, question, valueOf } from "./plan";

/** What the engine needs of the runtime that it works in. */
export interface EngineHost {
  now(): number;
  /** Calls back after some milliseconds; gives what undoes that. */
  later(milliseconds: number, then: () => void): () => void;
  /** Asks calls; `onCell` is told each answer, `onHeard` of any life of the server. */
  ask(
    calls: Call[], signal: AbortSignal, onCell: (index: number, answer: Answer) => void, onHeard: () => void,
  ): Promise<ServerUsage>;
  /** Whether the server answers at all. */
  probe(): Promise<boolean>;
  /** Counts changed. */
  progress(): void;
}

/** A formula on the sheet, as it is told of its value. */
interface Formula {
  question: Question;
  answers: Map<string, Answer>;
  show(value: Value): void;
}

/** A formula that fills is shown this often at most: every time, Excel calculates what depends on it. */
const SHOW_MS = 250;

/** What a cell has whose call was called off by its user. */
export const STOPPED = new CellError("#N/A", "stopped before its answer came; Ask failed cells again asks for it");

/** Tokens of prompts and of answers. */
export interface Tokens {
  prompt: number;
  output: number;
}

/** The engine. */
export class Engine {
  readonly usage: Usage = noUsage();
  /** Why cells were given up last; nothing once a request succeeds. */
  problem: RequestError | undefined;
  /** Calls that were called off by their user, all together. */
  private stopped = 0;
  private readonly watch: ServerWatch;
  /** Tokens of requests under way. */
  private readonly open = new Map<number, Tokens>();
  private readonly batcher: Batcher;
  private readonly answersSeen = new AnswerCache();
  private readonly formulas = new Map<number, Formula>();
  private readonly inFlight = new Map<number, AbortController>();
  private readonly arrived = new Set<number>();
  private stopWake: (() => void) | undefined;
  private isShowing = false;
  private last = 0;

  constructor(private readonly host: EngineHost, private readonly limits: Limits = LIMITS) {
    this.batcher = new Batcher(limits);
    this.watch = new ServerWatch({
      now: () => host.now(), later: (milliseconds, then) => host.later(milliseconds, then), probe: () => host.probe(),
      isOffline: () => this.batcher.isOffline, away: () => this.away(), back: () => this.back(),
    });
  }

  /** Calls without an answer. */
  get pending(): number {
    return this.batcher.pending;
  }

  /** How the calls stand, for a run bar. */
  get state(): RunState {
    const { isOffline: isReconnecting, isPaused } = this.batcher;
    return { pending: this.pending, stopped: this.stopped, usage: this.usage, now: this.host.now(), isReconnecting, isPaused };
  }

  /** Whether a formula or column has cells without an answer that can be asked again. */
  get hasFailures(): boolean {
    return [...this.formulas.values()].some(({ answers }) => [...answers.values()].some(({ error }) => error));
  }

  /** The distinct calls of a function that have no answer yet: what adding it would ask. */
  unknown(name: string, values: (Value | undefined)[]): Call[] {
    const { calls } = question(name, values);
    return [...calls].flatMap(([key, call]) => (this.answersSeen.get(key) ? [] : [call]));
  }

  /** Tokens so far, with those of requests under way. */
  get tokens(): Tokens {
    const all = { prompt: this.usage.promptTokens, output: this.usage.outputTokens };
    for (const { prompt, output } of this.open.values()) {
      all.prompt += prompt;
      all.output += output;
    }
    return all;
  }

  /** Calls off all that has no answer, on the server too; answers that are there stay. */
  stop(): void {
    const { actions, stopped } = this.batcher.stop();
    this.act(actions);
    this.stopped += stopped.length;
    for (const closed of stopped) this.give(closed, { error: STOPPED });
    this.host.progress();
  }

  /**
   * A formula appears. `show` is told its value, and again when more of it is known; what is all known is shown before
   * this returns, so that Excel has no time for its busy mark. Gives what the formula's going calls.
   */
  add(name: string, values: (Value | undefined)[], show: (value: Value) => void): () => void {
    const id = (this.last += 1);
    const formula: Formula = { question: question(name, values), answers: new Map(), show };
    for (const key of formula.question.calls.keys()) {
      const known = this.answersSeen.get(key);
      if (known) formula.answers.set(key, known);
    }
    const open = this.unanswered(formula);
    if (open.size === 0) {
      show(this.valueOf(formula));
      return () => undefined;
    }
    this.formulas.set(id, formula);
    if (formula.answers.size > 0) show(this.valueOf(formula));
    if (this.batcher.pending === 0) this.answersSeen.begin();
    this.batcher.want(id, open, this.host.now());
    this.poll();
    return () => void this.host.later(this.limits.window, () => this.leave(id));
  }

  /** Asks again what failed, of formulas that are still there. */
  retry(): void {
    for (const [id, formula] of this.formulas) {
      for (const [key, answer] of [...formula.answers]) if (answer.error) formula.answers.delete(key);
      this.batcher.want(id, this.unanswered(formula), this.host.now());
    }
    this.poll();
  }

  private leave(id: number): void {
    this.formulas.delete(id);
    this.batcher.want(id, new Map(), this.host.now());
    this.poll();
  }

  private unanswered({ question: { calls }, answers }: Formula): Map<string, Call> {
    return new Map([...calls].filter(([key]) => !answers.has(key)));
  }

  private valueOf(formula: Formula): Value {
    return valueOf(formula.question, (key) => formula.answers.get(key));
  }

  private poll(): void {
    this.act(this.batcher.poll(this.host.now()));
    this.stopWake?.();
    const wake = this.batcher.wake();
    this.stopWake =
      wake === undefined ? undefined : this.host.later(Math.max(0, wake - this.host.now()), () => this.poll());
    this.host.progress();
  }

  private act(actions: Action[]): void {
    for (const action of actions) {
      if (action.kind === "send") void this.send(action.request, action.calls);
      else this.inFlight.get(action.request)?.abort();
    }
  }

  private async send(request: number, calls: Call[]): Promise<void> {
    const abort = new AbortController();
    this.inFlight.set(request, abort);
    const started = this.host.now();
    this.usage.requests += 1;
    this.usage.asked += calls.length;
    const tokens: Tokens = { prompt: 0, output: 0 };
    this.open.set(request, tokens);
    const watched = this.watch.begin(() => abort.abort(new RequestError("the connection broke", 0, undefined)));
    let done = 0;
    try {
      const usage = await this.host.ask(calls, abort.signal, (index, answer) => {
        done += 1;
        tokens.prompt += answer.details?.usage?.prompt_tokens ?? 0;
        tokens.output += answer.details?.usage?.completion_tokens ?? 0;
        const closed = this.batcher.answered(request, index);
        if (closed) this.take(closed, answer);
      }, () => this.watch.hear(watched));
      this.open.delete(request);
      this.problem = undefined;
      add(this.usage, usage);
      this.end(request, new RequestError("the server left the cell out", 500, undefined));
    } catch (error) {
      // What was answered before is paid for all the same.
      this.open.delete(request);
      add(this.usage, { prompt_tokens: tokens.prompt, completion_tokens: tokens.output });
      const reason: unknown = abort.signal.aborted ? abort.signal.reason : error;
      if (reason instanceof RequestError) this.end(request, reason);
      else if (abort.signal.aborted) this.usage.cancelled += calls.length - done;
      else this.end(request, new RequestError(String(error), 500, undefined));
    }
    this.inFlight.delete(request);
    this.usage.lastMs = this.host.now() - started;
    this.usage.totalMs += this.usage.lastMs;
    this.poll();
    this.watch.end(watched);
  }

  private away(): void {
    this.batcher.offline();
    this.host.progress();
  }

  private back(): void {
    this.batcher.online();
    this.poll();
  }

  private end(request: number, error: RequestError): void {
    const { again, retryAfter, isTooLarge, isUnreachable } = error;
    const failure = { again, retryAfter, isTooLarge, isUnreachable };
    const lost = this.batcher.ended(request, failure, this.host.now());
    if (lost.length > 0) this.problem = error;
    for (const closed of lost) this.take(closed, { error: new CellError("#N/A", error.message) });
  }

  private take({ key, cells }: Closed, answer: Answer): void {
    if (answer.error) this.usage.failed += 1;
    else this.usage.answered += 1;
    // A failure is not remembered: the same formula entered again asks again.
    if (!answer.error) this.answersSeen.put(key, answer);
    this.give({ key, cells }, answer);
  }

  private give({ key, cells }: Closed, answer: Answer): void {
    for (const id of cells) {
      this.formulas.get(id)?.answers.set(key, answer);
      this.arrived.add(id);
    }
    if (this.isShowing) return;
    // The first answers are shown at once, later ones together.
    this.isShowing = true;
    this.host.later(0, () => this.show());
  }

  private show(): void {
    for (const id of this.arrived) {
      const formula = this.formulas.get(id);
      if (!formula) continue;
      const value = this.valueOf(formula);
      formula.show(value);
      // What failed may be asked again while its formula stands.
      const isOver = !cellsOf(value).some((cell) => cell === PENDING || cell instanceof CellError);
      if (isOver) {
        this.formulas.delete(id);
        this.batcher.want(id, new Map(), this.host.now());
      }
    }
    this.arrived.clear();
    this.host.progress();
    this.host.later(SHOW_MS, () => {
      this.isShowing = this.arrived.size > 0;
      if (this.isShowing) this.show();
    });
  }
}

function cellsOf(value: Value) {
  return isMatrix(value) ? value.flat() : [value];
}
