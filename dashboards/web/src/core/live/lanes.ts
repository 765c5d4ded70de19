// RelQueries as lanes of a chart: each with its three periods, as they are or as they were at an earlier time. No browser.

import { t } from "../../text";
import type { Period } from "./events";
import type { Bar } from "./model";
import { detail, noun, title } from "./names";
import { segments } from "./summary";
import { span } from "./words";

/** A stretch in a lane. */
export interface Piece {
  lane: number;
  from: number;
  to: number;
  kind: Period | "cancelled";
}

/** What a lane chart draws. Times are microseconds. */
export interface LaneData {
  /** The lanes, from the top. */
  names: string[];
  /** A second line below each name, where lanes are high enough. */
  notes?: string[];
  /** Lanes that are the headings of those below them. */
  heads?: ReadonlySet<number>;
  pieces: Piece[];
  from: number;
  to: number;
}

/** A bar as it stood at a time; none before it came. */
export function asAt(bar: Bar, time: number): Bar | undefined {
  if (bar.arrival_us > time) return undefined;
  if (bar.end_us !== undefined && bar.end_us <= time) return bar;
  const known = (at: number | undefined) => (at !== undefined && at <= time ? at : undefined);
  const started_us = known(bar.started_us);
  const isTail = known(bar.prefilled_us) !== undefined && (bar.end_us !== undefined || bar.period === "tail");
  const period: Period = started_us === undefined ? "waiting" : isTail ? "tail" : "core";
  return { ...bar, started_us, prefilled_us: known(bar.prefilled_us), end_us: undefined, period };
}

/** Whether relQueries of several tenants are shown: of one alone every name would begin alike. */
export function hasTenants(bars: readonly Bar[], ofAll: boolean): boolean {
  return ofAll && bars.some(({ tenant }) => tenant !== bars[0]?.tenant);
}

/** What a lane is called: its tenant stands first where there are several. */
export function laneName(bar: Bar, ofAll: boolean): string {
  return ofAll ? `${bar.tenant}: ${title(bar)}` : title(bar);
}

/** What stands below a lane's name: how much it is, and how long it took or has taken. */
function laneNote(bar: Bar, time: number): string {
  const of = bar.end_us === undefined ? t.live.laneSoFar : t.live.laneTook;
  return of(bar.rows, noun(bar, bar.rows), span((bar.end_us ?? Math.max(time, bar.arrival_us)) - bar.arrival_us));
}

/** The lowest a lane is, and the highest: few use the room there is, many share it. */
const LEAST_PX = 22;
const MOST_PX = 60;

/** How high each of so many lanes is in a room of so many pixels. */
export function laneHeight(lanes: number, room: number): number {
  return Math.min(MOST_PX, Math.max(LEAST_PX, Math.floor(room / Math.max(1, lanes))));
}

/** The lanes of bars at a time, the one that came last at the top. */
export function lanesAt(bars: readonly Bar[], time: number, ofAll: boolean): LaneData & { bars: Bar[] } {
  const shown = bars.flatMap((bar) => asAt(bar, time) ?? []);
  const pieces = shown.flatMap((bar, lane) => segments(bar, time).map(({ kind, from, to }) => ({ lane, from, to, kind })));
  const from = Math.min(time, ...shown.map((bar) => bar.arrival_us));
  const names = shown.map((bar) => laneName(bar, ofAll));
  return { names, notes: shown.map((bar) => laneNote(bar, time)), pieces, from, to: Math.max(time, from + 1), bars: shown };
}

/** The first arrival that is known; `now` where none is. */
export function firstArrival(bars: readonly Bar[], now: number): number {
  return Math.min(now, ...bars.map((bar) => bar.arrival_us));
}

/** The longest stretch that is shown at first. */
const WINDOW_US = 60e6;

/** A pause that parts one stretch of work from the one before: at least so long, and as long as all that came after it. */
const PAUSE_US = 500e3;

/** Around what ended, so much of it; and the shortest stretch that is shown. */
const MARGIN = 0.05;
const LEAST_US = 200e3;

/** The stretch that is shown at first: the last work, back to a long pause, so that short relQueries are no slivers in idle time. */
export function firstWindow(bars: readonly Bar[], now: number): { from: number; to: number } {
  const first = firstArrival(bars, now);
  const end = (bar: Bar) => bar.end_us ?? now;
  const newest = [...bars].sort((a, b) => end(b) - end(a));
  const to = newest[0] ? end(newest[0]) : now;
  let from = to;
  for (const bar of newest) {
    if (from - end(bar) > Math.max(PAUSE_US, to - from)) break;
    from = Math.min(from, bar.arrival_us);
  }
  from = Math.max(from, to - WINDOW_US);
  const margin = Math.max(MARGIN * (to - from), (LEAST_US - (to - from)) / 2);
  return { from: Math.max(first, from - margin), to: Math.max(first + 1, Math.min(now, to + margin)) };
}

/** Those that have something in a stretch of time. */
export function within(bars: readonly Bar[], { from, to }: { from: number; to: number }, now: number): Bar[] {
  return bars.filter((bar) => bar.arrival_us <= to && (bar.end_us ?? now) >= from);
}

/** A lane in words, for those who point at it. */
export function laneWords(bar: Bar): string[] {
  const rows = bar.failed > 0 ? t.live.laneFailed(bar.rows, bar.failed) : t.live.laneRows(bar.rows);
  return [title(bar), detail(bar), rows];
}
