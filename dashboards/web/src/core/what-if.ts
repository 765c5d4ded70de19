// What another policy would have made of the last minutes: the server's answer, what is said of it, and how it is drawn. No
// browser.

import { decimal, t } from "../text";
import type { RelQueryIdentity } from "./live/events";
import type { LaneData, Piece } from "./live/lanes";
import { title } from "./live/names";
import { plainName } from "./live/policy";

/** Latencies of relQueries, in milliseconds. */
export interface Latency {
  relqueries: number;
  mean_ms: number;
  p50_ms: number;
  p95_ms: number;
  max_ms: number;
  waiting_ms: number;
  core_ms: number;
  tail_ms: number;
}

/** One policy. */
export interface Replay {
  policy: string;
  is_present: boolean;
  latency: Latency;
  /** Told to operators. */
  prefix_hits: number | null;
  steps: number | null;
}

/** The three periods of a relQuery. */
export interface Periods {
  waiting_ms: number;
  core_ms: number;
  tail_ms: number;
}

/** A relQuery as it was and as it would have been under each policy of `replays`. */
export interface Timeline extends RelQueryIdentity {
  rows: number;
  arrival_ms: number;
  measured: Periods | null;
  replays: Periods[];
}

/** The answer of `POST /v1/scheduler/what-if`: to an operator of all relQueries, to others of their own among all. */
export interface WhatIf {
  span_ms: number;
  relqueries: number;
  rows: number;
  left_out: number;
  running: number;
  measured: Latency | null;
  replays: Replay[];
  /** The simulated average under the present policy over the measured one, less 1. */
  error: number | null;
  pace: number | null;
  timelines: Timeline[];
  took_ms: number;
}

/** An error up to which the comparison is taken as it is. */
const ERROR_MAX = 0.25;
/** RelQueries in the chart: those that took longest. */
export const DRAWN_MAX = 15;

/** Milliseconds in words. */
export function milliseconds(ms: number): string {
  if (ms === 0) return "0 ms";
  return ms < 1_000 ? `${decimal(ms, ms < 10 ? 2 : 0)} ms` : `${decimal(ms / 1_000, 2)} s`;
}

/** How far apart two averages are, in words. */
function apart(ratio: number): string {
  const by = Math.round(Math.abs(ratio - 1) * 100);
  return by === 0 ? t.whatIf.same : (ratio > 1 ? t.whatIf.longer : t.whatIf.shorter)(by);
}

/** The answer in a sentence: the present policy beside the others, both simulated. */
export function verdict(answer: WhatIf): string {
  const [present, ...others] = answer.replays;
  if (!present) return t.whatIf.nothing;
  const of = t.whatIf.of(answer.relqueries, answer.rows, milliseconds(answer.span_ms));
  const mean = present.latency.mean_ms;
  const compared = others.map((other) => {
    const ratio = mean > 0 ? other.latency.mean_ms / mean : 1;
    return t.whatIf.other(plainName(other.policy), milliseconds(other.latency.mean_ms), apart(ratio));
  });
  const now = t.whatIf.now(milliseconds(mean), plainName(present.policy));
  return `${of}: ${[now, ...compared].join("; ")}.`;
}

/** How far the simulator is off, in a sentence; nothing where nothing was measured. */
export function check({ replays, measured, error }: WhatIf): string {
  const present = replays[0];
  if (!present || !measured || error === null) return "";
  const by = Math.round(Math.abs(error) * 100);
  const off = by === 0 ? t.whatIf.exact : (error > 0 ? t.whatIf.tooLong : t.whatIf.tooShort)(by);
  const said = t.whatIf.check(milliseconds(measured.mean_ms), milliseconds(present.latency.mean_ms), off);
  return Math.abs(error) > ERROR_MAX ? `${said} ${t.whatIf.farOff}` : said;
}

const US = 1_000;

/** The stretches of a relQuery that took these periods. */
function stretches(lane: number, arrival_ms: number, { waiting_ms, core_ms, tail_ms }: Periods): Piece[] {
  const started = arrival_ms + waiting_ms;
  const prefilled = started + core_ms;
  const all: Piece[] = [
    { lane, kind: "waiting", from: arrival_ms * US, to: started * US },
    { lane, kind: "core", from: started * US, to: prefilled * US },
    { lane, kind: "tail", from: prefilled * US, to: (prefilled + tail_ms) * US },
  ];
  return all.filter(({ from, to }) => to > from);
}

const length = ({ waiting_ms, core_ms, tail_ms }: Periods) => waiting_ms + core_ms + tail_ms;

/** Lanes under the names of their relQueries. */
export interface Drawn extends LaneData {
  heads: Set<number>;
  /** What each lane is of. */
  of: string[];
  relqueries: number;
}

/** Both timelines of the relQueries that took longest: as measured, and as replayed under the present policy and another. */
export function drawn(answer: WhatIf, other: number): Drawn {
  const longest = (one: Timeline) => Math.max(...[one.measured, ...one.replays].map((periods) => (periods ? length(periods) : 0)));
  const chosen = [...answer.timelines].sort((a, b) => longest(b) - longest(a)).slice(0, DRAWN_MAX);
  chosen.sort((a, b) => a.arrival_ms - b.arrival_ms);
  const names: string[] = [];
  const of: string[] = [];
  const pieces: Piece[] = [];
  const heads = new Set<number>();
  const add = (name: string, one: Timeline, periods: Periods | null | undefined) => {
    if (!periods) return;
    pieces.push(...stretches(names.length, one.arrival_ms, periods));
    of.push(title(one));
    names.push(name);
  };
  for (const one of chosen) {
    heads.add(names.length);
    of.push(title(one));
    names.push(title(one));
    add(t.whatIf.asItWas, one, one.measured);
    for (const at of new Set([0, other])) {
      const replay = answer.replays[at];
      if (replay) add(at === 0 ? t.whatIf.simulated : plainName(replay.policy), one, one.replays[at]);
    }
  }
  const to = Math.max(1, ...pieces.map((piece) => piece.to));
  return { names, of, heads, pieces, from: 0, to, relqueries: chosen.length };
}
