// RelQueries as lanes of a chart: each with its three periods, as they are or as they were at an earlier time. No browser.

import { t } from "../../text";
import type { Period } from "./events";
import type { Bar } from "./model";
import { detail, title } from "./names";
import { segments } from "./summary";

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

/** What a lane is called: its tenant stands first where there are several. */
export function laneName(bar: Bar, ofAll: boolean): string {
  return ofAll ? `${bar.tenant}: ${title(bar)}` : title(bar);
}

/** The lanes of bars at a time, the one that came last at the top. */
export function lanesAt(bars: readonly Bar[], time: number, ofAll: boolean): LaneData & { bars: Bar[] } {
  const shown = bars.flatMap((bar) => asAt(bar, time) ?? []);
  const pieces = shown.flatMap((bar, lane) => segments(bar, time).map(({ kind, from, to }) => ({ lane, from, to, kind })));
  const from = Math.min(time, ...shown.map((bar) => bar.arrival_us));
  return { names: shown.map((bar) => laneName(bar, ofAll)), pieces, from, to: Math.max(time, from + 1), bars: shown };
}

/** The first arrival that is known; `now` where none is. */
export function firstArrival(bars: readonly Bar[], now: number): number {
  return Math.min(now, ...bars.map((bar) => bar.arrival_us));
}

/** What is shown at first of the last minutes. */
const WINDOW_US = 60e6;

/** Around what ended, so much of it; and the shortest stretch that is shown. */
const MARGIN = 0.05;
const LEAST_US = 200e3;

/** The stretch that is shown at first: the work of the last minute, or all work where nothing happened in that. */
export function firstWindow(bars: readonly Bar[], now: number): { from: number; to: number } {
  const first = firstArrival(bars, now);
  const late = bars.filter((bar) => (bar.end_us ?? now) > now - WINDOW_US);
  const from = late.length === 0 ? first : Math.max(firstArrival(late, now), now - WINDOW_US);
  const to = Math.max(from, ...(late.length === 0 ? bars : late).map((bar) => bar.end_us ?? now));
  const margin = Math.max(MARGIN * (to - from), (LEAST_US - (to - from)) / 2);
  return { from: Math.max(first, from - margin), to: Math.max(first + 1, Math.min(now, to + margin)) };
}

/** A lane in words, for those who point at it. */
export function laneWords(bar: Bar): string[] {
  const rows = bar.failed > 0 ? t.live.laneFailed(bar.rows, bar.failed) : t.live.laneRows(bar.rows);
  return [title(bar), detail(bar), rows];
}
