// What another policy would have made of the last minutes: the server's answer, and what is said of it. No browser.

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

/** The answer of `POST /v1/scheduler/what-if`: to an operator of all relQueries, to others of their own among all. */
export interface WhatIf {
  span_ms: number;
  relqueries: number;
  rows: number;
  left_out: number;
  running: number;
  measured: Latency | null;
  replays: Replay[];
  took_ms: number;
}

/** The policies that can be asked for. */
export const POLICIES = ["fcfs", "sarathi", "static-priority", "relserve", "relserve-pp", "relserve-dp", "marginal-work", "all"] as const;

/** Milliseconds in words. */
export function milliseconds(ms: number): string {
  return ms < 1_000 ? `${ms.toFixed(ms < 10 ? 2 : 0)} ms` : `${(ms / 1_000).toFixed(2)} s`;
}

/** The answer in a sentence. */
export function verdict(answer: WhatIf): string {
  const [present, ...others] = answer.replays;
  if (!present) return "Nothing that you may see has ended in the last minutes: there is nothing to replay.";
  const of = `${answer.relqueries} relQueries of ${answer.rows} rows in ${milliseconds(answer.span_ms)}`;
  const others_ = others.map((other) => {
    const ratio = present.latency.mean_ms > 0 ? other.latency.mean_ms / present.latency.mean_ms : 1;
    const by = Math.round(Math.abs(ratio - 1) * 100);
    const words = by === 0 ? "the same" : `${by} % ${ratio > 1 ? "longer" : "shorter"}`;
    return `under ${other.policy} ${milliseconds(other.latency.mean_ms)}, ${words}`;
  });
  return `${of}: average latency ${milliseconds(present.latency.mean_ms)} under ${present.policy}${others_.length > 0 ? "; " : ""}${others_.join("; ")}.`;
}
