// A world for a session: no clock, no network, no screen.

import { AnswerCache } from "relserve-client/answer-cache";
import type { Answer, Call } from "relserve-client/calls";
import { type ServerUsage, noUsage } from "relserve-client/usage";
import { shown } from "relserve-client/value";

import { Session, type SessionHost } from "../src/app/session";

/** A request. */
export interface Run {
  calls: Call[];
  signal: AbortSignal;
  onCell: (index: number, answer: Answer) => void;
  onHeard: () => void;
  isFresh: boolean;
  resolve: (usage: ServerUsage) => void;
  reject: (error: unknown) => void;
}

/** Time stands still until the test says so; requests end when it says so. */
export class Toy implements SessionHost {
  time = 0;
  readonly runs: Run[] = [];
  refusals = 0;
  /** Numbers of calls that were asked about, and what is said to the next question. */
  readonly questions: number[] = [];
  answer: (isAllowed: boolean) => void = () => undefined;
  private timers: { at: number; then: () => void }[] = [];
  readonly session: Session;

  constructor(memory = new AnswerCache(), calledOff = new Set<string>()) {
    this.session = new Session(this, noUsage(), memory, calledOff);
  }

  now = () => this.time;
  /** The model that the workbook names. */
  chosen: string | undefined;
  model = () => this.chosen;
  later = (milliseconds: number, then: () => void) => {
    const timer = { at: this.time + milliseconds, then };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((other) => other !== timer);
    };
  };
  run = (
    calls: Call[], signal: AbortSignal, onCell: Run["onCell"], onHeard: () => void, _labels: unknown, isFresh: boolean,
  ) =>
    new Promise<ServerUsage>((resolve, reject) => {
      signal.addEventListener("abort", () => reject(new Error("aborted")));
      this.runs.push({ calls, signal, onCell, onHeard, isFresh, resolve, reject });
    });
  /** Whether the server answers when it is asked so. */
  isThere = true;
  probes = 0;
  /** Whether nobody sees the page. */
  isHidden = false;
  probe = () => {
    this.probes += 1;
    return Promise.resolve(this.isThere);
  };
  allow = (calls: Call[]) => {
    this.questions.push(calls.length);
    return new Promise<boolean>((resolve) => {
      this.answer = resolve;
    });
  };
  paint: () => void = () => undefined;
  progressed = 0;
  progress = () => {
    this.progressed += 1;
  };
  unauthorized = () => {
    this.refusals += 1;
  };

  /** Lets time pass, timers and all that they promise. */
  async pass(milliseconds: number): Promise<void> {
    const end = this.time + milliseconds;
    for (;;) {
      await settle();
      const due = this.timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.timers = this.timers.filter((timer) => timer !== due);
      this.time = Math.max(this.time, due.at);
      due.then();
    }
    this.time = end;
  }

  set(row: number, column: number, raw: string): void {
    this.session.set([{ row, column, raw }]);
  }

  /** Texts down the first column, each with its rating beside it. */
  rate(texts: readonly string[]): void {
    for (const [row, text] of texts.entries()) {
      this.set(row, 0, text);
      this.set(row, 1, `=AI.RATE(A${row + 1})`);
    }
  }

  show(row: number, column: number): string {
    return shown(this.session.sheet.value(row, column));
  }
}

/** Promises that are ready take their turn. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
}

/** What was asked last. */
export function last(toy: Toy): Run {
  const run = toy.runs.at(-1);
  if (!run) throw new Error("nothing was asked");
  return run;
}
