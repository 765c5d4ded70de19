// How a run of calls goes on: how many are done, how long the rest may take, how it ended. Numbers only; whoever shows them
// has the words.

import type { Usage } from "./usage";

/** The rest is estimated out of what is done, from this part on: the first answers wait for their prompts. */
const ESTIMATE_FROM = 0.02;

/** How calls stand: those that are open, and those that were ever called off. */
export interface RunState {
  pending: number;
  stopped: number;
  usage: Usage;
  /** Milliseconds of a clock. */
  now: number;
  /** Whether the server that they wait for is away. */
  isReconnecting: boolean;
  /** Whether their user keeps them back. */
  isPaused: boolean;
}

/** A run as it is shown. */
export type RunView =
  | { kind: "idle" }
  | {
      kind: "running" | "paused" | "reconnecting";
      done: number;
      most: number;
      failed: number;
      /** Milliseconds that the rest may take, once that can be estimated. */
      leftMs: number | undefined;
    }
  /** It is over. `stopped` calls were called off. */
  | { kind: "ended"; most: number; failed: number; stopped: number; tookMs: number };

/** A run: it begins with the first open call and ends when none is open. */
export class RunProgress {
  private most = 0;
  private started = 0;
  private failedBefore = 0;
  private stoppedBefore = 0;
  /** When the pause began that lasts. */
  private pausedAt: number | undefined;

  /** Takes in how calls stand. */
  update({ pending, stopped, usage, now, isReconnecting, isPaused }: RunState): RunView {
    if (pending > this.most) {
      if (this.most === 0) [this.started, this.failedBefore, this.stoppedBefore] = [now, usage.failed, stopped];
      this.most = pending;
    }
    const { most } = this;
    if (most === 0) return { kind: "idle" };
    const failed = usage.failed - this.failedBefore;
    if (pending === 0) {
      const tookMs = now - this.started;
      this.reset();
      return { kind: "ended", most, failed, stopped: stopped - this.stoppedBefore, tookMs };
    }
    this.rest(isPaused, now);
    const share = (most - pending) / most;
    const leftMs = share < ESTIMATE_FROM ? undefined : ((now - this.started) * (1 - share)) / share;
    const kind = isPaused ? "paused" : isReconnecting ? "reconnecting" : "running";
    return { kind, done: most - pending, most, failed, leftMs };
  }

  /** Begins anew. */
  reset(): void {
    this.most = 0;
    this.pausedAt = undefined;
  }

  /** A pause does not count as time of the run. */
  private rest(isPaused: boolean, now: number): void {
    if (isPaused) this.pausedAt ??= now;
    else if (this.pausedAt !== undefined) {
      this.started += now - this.pausedAt;
      this.pausedAt = undefined;
    }
  }
}
