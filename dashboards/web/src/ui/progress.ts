// The run bar: how far the cells are that were asked, how long the rest may take, and what was said last.

import type { Usage } from "relserve-client/usage";

import { element } from "./dom";
import { count, seconds } from "./make";

/** A live region that is told every cell would never stop talking: it hears tenths. */
const STEPS = 10;
/** The rest is guessed out of what is done, from this part on: the first answers wait for their prompts. */
const SECONDS_FROM = 0.02;

/** What is said where nothing comes from a server that is there. */
const DELAYS = {
  busy: "The server is busy: these cells wait for their turn.",
  full: "The server is full: these cells are asked again by themselves.",
};

/** How a sheet's calls stand: those that are open, and those that were ever called off. */
export interface RunState {
  pending: number;
  stopped: number;
  usage: Usage;
  /** Milliseconds of the page's clock. */
  now: number;
  /** Whether the server that they wait for is away. */
  isReconnecting: boolean;
  /** Whether their user keeps them back. */
  isPaused: boolean;
  /** Why none of them comes, where the server is there. */
  delay: keyof typeof DELAYS | undefined;
}

/** The run bar. */
export class Progress {
  private readonly line = element("status", HTMLOutputElement);
  private readonly bar = element("run-progress", HTMLProgressElement);
  private readonly left = element("run-left", HTMLSpanElement);
  /** For those who hear the page: tenths. */
  private readonly share = element("run-share", HTMLOutputElement);
  private readonly stop = element("stop", HTMLButtonElement);
  private readonly pause = element("pause", HTMLButtonElement);
  private readonly undelete = element("undelete", HTMLButtonElement);
  /** What the button beside the words does, where there is one. */
  private back: (() => void) | undefined;
  /** When the pause began that lasts. */
  private pausedAt: number | undefined;
  /** What was said last, which stays in front of the progress that follows. */
  private note = "";
  private most = 0;
  private started = 0;
  private failedBefore = 0;
  private stoppedBefore = 0;

  constructor() {
    this.undelete.addEventListener("click", () => {
      const { back } = this;
      this.withdraw();
      back?.();
    });
  }

  /** Shows how many calls are open; `stopped` were called off by now. */
  show({ pending, stopped, usage, now, isReconnecting, isPaused, delay }: RunState): void {
    if (pending > this.most) {
      if (this.most === 0) [this.started, this.failedBefore, this.stoppedBefore] = [now, usage.failed, stopped];
      this.most = pending;
    }
    if (this.most === 0) return;
    const failed = usage.failed - this.failedBefore;
    if (pending === 0) {
      this.write(this.summary(now, failed, stopped - this.stoppedBefore));
      this.end();
      return;
    }
    const done = this.most - pending;
    this.rest(isPaused, now);
    this.open(done, now, failed);
    if (isPaused) {
      this.left.textContent = `${count(done)} done, ${count(pending)} wait`;
      this.write(`Paused at ${count(done)} of ${count(this.most)} cells. Resume goes on.`);
      return;
    }
    this.bar.classList.toggle("bad", isReconnecting);
    if (isReconnecting) {
      this.left.textContent = `${count(done)} of ${count(this.most)} cells`;
      this.write("Reconnecting: the server cannot be reached. The cells go on by themselves when it is back.");
      return;
    }
    this.write(delay ? DELAYS[delay] : "");
    const share = `${(100 * Math.floor((STEPS * done) / this.most)) / STEPS} % of ${count(this.most)} cells`;
    if (this.share.value !== share) this.share.value = share;
  }

  /** Begins anew: another sheet is shown. */
  reset(): void {
    this.end();
    this.say("");
  }

  /** Shows words, until others are said. */
  say(words: string): void {
    this.withdraw();
    this.note = words;
    this.write("");
  }

  /** Shows words and a button that takes back what they tell, until others are said or it can be taken back no more. */
  offer(words: string, back: () => void): void {
    this.say(words);
    this.back = back;
    this.undelete.hidden = false;
  }

  /** It can be taken back no more. */
  withdraw(): void {
    this.back = undefined;
    this.undelete.hidden = true;
  }

  /** A pause does not count as time of the run. */
  private rest(isPaused: boolean, now: number): void {
    if (isPaused) this.pausedAt ??= now;
    else if (this.pausedAt !== undefined) {
      this.started += now - this.pausedAt;
      this.pausedAt = undefined;
    }
    this.pause.textContent = isPaused ? "Resume" : "Pause";
  }

  private open(done: number, now: number, failed: number): void {
    this.bar.hidden = this.stop.hidden = this.pause.hidden = this.left.hidden = false;
    this.bar.max = this.most;
    this.bar.value = done;
    const share = done / this.most;
    const rest = share < SECONDS_FROM ? "" : `, about ${seconds(((now - this.started) * (1 - share)) / share)} left`;
    const bad = failed > 0 ? `, ${count(failed)} failed` : "";
    this.left.textContent = `${count(done)} of ${count(this.most)} cells${bad}${rest}`;
  }

  private end(): void {
    this.most = 0;
    this.bar.hidden = this.left.hidden = true;
    this.share.value = "";
    // A button that goes takes the focus with it, and the keys would be nobody's.
    if ([this.stop, this.pause].includes(document.activeElement as HTMLButtonElement)) element("retry", HTMLButtonElement).focus();
    this.stop.hidden = this.pause.hidden = true;
    this.pausedAt = undefined;
  }

  private summary(now: number, failed: number, stopped: number): string {
    const took = seconds(now - this.started);
    if (stopped > 0) return `Stopped: ${count(this.most - stopped)} of ${count(this.most)} cells are answered and stay, after ${took}`;
    const but = failed > 0 ? `, ${count(failed)} of them without an answer: Ask again asks for those` : "";
    return `${count(this.most)} ${this.most === 1 ? "cell" : "cells"} in ${took}${but}`;
  }

  private write(progress: string): void {
    const words = [this.note, progress].filter(Boolean).join(" ");
    if (this.line.value !== words) this.line.value = words;
  }
}
