// The line below the page's head, in every view: that the server does not answer, since when, what becomes of what is typed;
// and that it answers again.

import { Heartbeat } from "../app/heartbeat";
import { TOLD_MS } from "../core/status-line";
import { probe } from "../net/cells";
import { t, time } from "../text";
import { element, onClick } from "./dom";

/** A silent server counts as none after this time, in milliseconds: one that computes on all processors may take a while. */
const SILENT_MS = 3_000;

/** Where what was typed is: on the server, not yet there, in this browser, or only in the page. */
export type Kept = keyof typeof t.away.kept;

/** What the page does when the server goes and comes. */
export interface ServerEvents {
  away(): void;
  back(): void;
}

/** The line, and the heartbeat that it tells of. */
export class ServerLine {
  private readonly line = element("server", HTMLDivElement);
  private readonly words = element("server-words", HTMLOutputElement);
  private readonly again = element("server-again", HTMLButtonElement);
  private readonly heartbeat: Heartbeat;
  private since = 0;
  private kept: Kept = "here";
  private leaving: number | undefined;

  constructor(events: ServerEvents) {
    this.heartbeat = new Heartbeat({
      now: () => Date.now(),
      later: (milliseconds, then) => {
        const timer = setTimeout(then, milliseconds);
        return () => clearTimeout(timer);
      },
      probe: () => probe(SILENT_MS),
      isHidden: () => document.hidden,
      away: (since) => {
        this.since = since;
        this.show();
        events.away();
      },
      back: () => {
        this.show();
        events.back();
      },
    });
    onClick("server-again", () => this.heartbeat.look());
    document.addEventListener("visibilitychange", () => this.heartbeat.look());
    for (const change of ["online", "offline"]) addEventListener(change, () => this.heartbeat.look());
    this.heartbeat.look();
  }

  /** Whether it does not answer. */
  get isAway(): boolean {
    return this.heartbeat.isAway;
  }

  /** Something was heard of the server. */
  heard(): void {
    this.heartbeat.heard();
  }

  /** Cells that wait for it find the server away, or there. */
  found(isAway: boolean): void {
    if (isAway !== this.isAway) this.heartbeat.look();
  }

  /** Where what was typed is now. */
  keeps(kept: Kept): void {
    this.kept = kept;
    if (this.isAway) this.show();
  }

  private show(): void {
    clearTimeout(this.leaving);
    const { isAway } = this;
    this.line.classList.toggle("away", isAway);
    if (isAway) this.say(`${t.away.since(time(this.since))} ${t.away.kept[this.kept]}`);
    else {
      this.say(t.away.back);
      this.leaving = window.setTimeout(() => this.say(""), TOLD_MS);
    }
    // A button that goes takes the focus with it.
    if (!isAway && document.activeElement === this.again) document.querySelector<HTMLElement>("nav [aria-current]")?.focus();
    this.again.hidden = !isAway;
  }

  private say(words: string): void {
    if (this.words.value !== words) this.words.value = words;
  }
}
