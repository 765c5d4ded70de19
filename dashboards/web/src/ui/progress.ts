// The run bar: how far the cells are that were asked, how long the rest may take, and what was said last.

import { RunProgress, type RunState, type RunView } from "relserve-client/run-progress";

import { StatusLine } from "../core/status-line";
import { percent, t } from "../text";
import { element } from "./dom";
import { seconds } from "./make";

/** A live region that is told every cell would never stop talking: it hears tenths. */
const STEPS = 10;

/** What is said where nothing comes from a server that is there. */
const DELAYS = { busy: t.run.busy, full: t.run.full };

/** A run, and why none of its answers comes where the server is there. */
interface PageRun extends RunState {
  delay: keyof typeof DELAYS | undefined;
}

/** What calls back after a while, in the browser. */
const later = (milliseconds: number, then: () => void) => {
  const timer = setTimeout(then, milliseconds);
  return () => clearTimeout(timer);
};

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
  private readonly run = new RunProgress();
  private readonly words = new StatusLine(later, (words) => {
    if (this.line.value !== words) this.line.value = words;
  });

  constructor() {
    this.undelete.addEventListener("click", () => {
      const { back } = this;
      this.withdraw();
      back?.();
    });
  }

  /** Shows how calls stand. */
  show(state: PageRun): void {
    const view = this.run.update(state);
    if (view.kind === "idle") return;
    if (view.kind === "ended") {
      // What can be retried is told until it is.
      this.words.tell(summary(view), view.failed + view.stopped > 0);
      this.end();
      return;
    }
    this.open(view);
    const { kind, done, most } = view;
    if (kind === "paused") {
      this.left.textContent = t.run.pausedLeft(done, most - done);
      this.words.tell(t.run.paused);
      return;
    }
    this.bar.classList.toggle("bad", kind === "reconnecting");
    if (kind === "reconnecting") {
      this.left.textContent = t.run.done(done, most);
      this.words.tell(t.run.reconnecting);
      return;
    }
    this.words.tell(state.delay ? DELAYS[state.delay] : "");
    const share = t.run.share(percent(Math.floor((STEPS * done) / most) / STEPS), most);
    if (this.share.value !== share) this.share.value = share;
  }

  /** Begins anew: another sheet is shown. */
  reset(): void {
    this.end();
    this.say("");
  }

  /** Shows words for a while; those that last, until others are said. */
  say(words: string, lasts = false): void {
    this.withdraw();
    this.words.say(words, lasts);
  }

  /** Shows words and a button that takes back what they tell, until others are said or it can be taken back no more. */
  offer(words: string, back: () => void): void {
    this.say(words, true);
    this.back = back;
    this.undelete.hidden = false;
  }

  /** It can be taken back no more. */
  withdraw(): void {
    this.back = undefined;
    this.undelete.hidden = true;
  }

  private open({ kind, done, most, failed, leftMs }: Extract<RunView, { done: number }>): void {
    this.pause.textContent = kind === "paused" ? t.run.resume : t.run.pause;
    this.bar.hidden = this.stop.hidden = this.pause.hidden = this.left.hidden = false;
    this.bar.max = most;
    this.bar.value = done;
    const rest = leftMs === undefined ? "" : t.run.left(seconds(leftMs));
    const bad = failed > 0 ? t.run.failed(failed) : "";
    this.left.textContent = `${t.run.done(done, most)}${bad}${rest}`;
  }

  private end(): void {
    this.run.reset();
    this.bar.hidden = this.left.hidden = true;
    this.share.value = "";
    // A button that goes takes the focus with it, and the keys would be nobody's.
    if ([this.stop, this.pause].includes(document.activeElement as HTMLButtonElement)) {
      const retry = element("retry", HTMLButtonElement);
      (retry.disabled ? element("add-column", HTMLButtonElement) : retry).focus();
    }
    this.stop.hidden = this.pause.hidden = true;
  }
}

function summary({ most, failed, stopped, tookMs }: Extract<RunView, { kind: "ended" }>): string {
  const took = seconds(tookMs);
  if (stopped > 0) return t.run.stopped(most - stopped, most, took);
  const but = failed > 0 ? t.run.withoutAnswer(failed) : "";
  return `${t.run.over(most, took)}${but}`;
}
