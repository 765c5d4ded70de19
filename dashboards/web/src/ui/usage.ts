// The usage panel and the line of progress.

import type { Usage } from "relserve-client/usage";

import { element, fillList } from "./dom";

const count = (value: number) => value.toLocaleString("en");
const seconds = (ms: number) => `${(ms / 1_000).toFixed(ms < 10_000 ? 2 : 1)} s`;

/** Shows what a sheet has cost. */
export function showUsage(usage: Usage): void {
  const cached = usage.promptTokens > 0 ? ` (${Math.round((100 * usage.cachedTokens) / usage.promptTokens)} %)` : "";
  fillList(element("usage-list", HTMLElement), [
    ["Cells asked", count(usage.asked)],
    ["Answered", count(usage.answered)],
    ["Failed", count(usage.failed)],
    ["Cancelled", count(usage.cancelled)],
    ["From the server's cache", count(usage.fromCache)],
    ["Computed once for several", count(usage.deduplicated)],
    ["Prompt tokens", count(usage.promptTokens)],
    ["of them cached", count(usage.cachedTokens) + cached],
    ["Answer tokens", count(usage.outputTokens)],
    ["Requests", count(usage.requests)],
    ["Time, last request", seconds(usage.lastMs)],
    ["Time, all requests", seconds(usage.totalMs)],
  ]);
}

/** A live region that is told every cell would never stop talking: it hears tenths. */
const STEPS = 10;

/** The line of progress. */
export class Progress {
  private readonly line = element("status", HTMLOutputElement);
  /** What was said last, which stays in front of the progress that follows. */
  private note = "";
  private most = 0;
  private started = 0;
  private failedBefore = 0;

  /** Shows how many calls are open. */
  show(pending: number, usage: Usage, now: number): void {
    if (pending > this.most) {
      if (this.most === 0) [this.started, this.failedBefore] = [now, usage.failed];
      this.most = pending;
    }
    if (this.most === 0) return;
    if (pending === 0) {
      const failed = usage.failed - this.failedBefore;
      const but = failed > 0 ? `, ${count(failed)} of them without an answer` : "";
      this.write(`${count(this.most)} ${this.most === 1 ? "cell" : "cells"} in ${seconds(now - this.started)}${but}`);
      this.most = 0;
      return;
    }
    const done = Math.floor((STEPS * (this.most - pending)) / this.most);
    this.write(`${Math.floor((100 * done) / STEPS)} % of ${count(this.most)} cells`);
  }

  /** Begins anew: another sheet is shown. */
  reset(): void {
    this.most = 0;
    this.say("");
  }

  /** Shows words, until others are said. */
  say(words: string): void {
    this.note = words;
    this.write("");
  }

  private write(progress: string): void {
    const words = [this.note, progress].filter(Boolean).join(" ");
    if (this.line.value !== words) this.line.value = words;
  }
}
