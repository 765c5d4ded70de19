// The live view's sentences: times, priorities, relQueries and steps in words.

import type { RelQueryStatus, Step } from "./events";
import type { Bar } from "./model";
import { segments } from "./summary";

/** A priority in words; the lower goes first. */
export function priority(one: RelQueryStatus): string {
  const count = (number: number) => Math.round(number).toLocaleString("en");
  if (one.unit === "ns") return span(one.priority / 1e3);
  return one.unit === "aged" ? `${count(one.priority / 1e6)}, aged` : `${count(one.priority)} tokens`;
}

/** A stretch of time in words. */
export function span(us: number): string {
  if (Math.abs(us) >= 119.5e6) return `${Math.trunc(Math.round(us / 1e6) / 60)} min ${Math.abs(Math.round(us / 1e6) % 60)} s`;
  if (Math.abs(us) < 1_000) return `${Math.round(us)} µs`;
  if (Math.abs(us) < 1e6) return `${(us / 1e3).toFixed(Math.abs(us) < 1e4 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(Math.abs(us) < 1e7 ? 2 : 1)} s`;
}

/** The periods of a bar in words. */
export function periods(bar: Bar, now: number): string {
  const parts = segments(bar, now).map(({ kind, from, to }) => `${kind} ${span(to - from)}`);
  return parts.join(", ") || "just came";
}

/** The arranger's trade-off in words (RelServe, Eq. 15-17). */
export function delta(step: Step): string | undefined {
  if (!step.delta) return undefined;
  const { total_us, lost_us, gained_us } = step.delta;
  // The server's numbers are rounded.
  const sign = gained_us > 2 && Math.abs(total_us - lost_us - gained_us) <= 2 ? "+" : "−";
  return `Δ = ${span(lost_us)} lost ${sign} ${span(gained_us)} gained = ${span(total_us)}`;
}

/** The server's reasons in words that need no paper; what is not here is told as the server says it. */
const REASONS: Readonly<Record<string, string>> = {
  "nothing runs": "no row was writing an answer, so prompts were computed",
  "nothing waits": "no row was waiting, so answers went on",
  "prefill first: a waiting row can be admitted": "a waiting row found room, and new rows go first under this policy",
  "the first waiting row finds no room": "the next row found no free seat or memory, so answers went on",
  "decodes with a chunk of prompts": "answers went on, and as many prompts as fit were computed beside them",
  "tries rows of a failed step again": "a step had failed, and its rows are tried in smaller groups",
  "preemption: the first waiting relQuery goes before all that run": "what waits first has less left than all that run, so it went before them",
  "internal: the first relQuery still has prompts": "the relQuery at the front still had prompts to compute",
  "transition: prefilling first lowers the mean latency": "taking new rows in first makes the average wait shorter",
  "transition: decoding first lowers the mean latency": "finishing answers first makes the average wait shorter, or no longer",
  "first rows of a relQuery that is alone end early": "nobody else was there, so its first answers were finished early",
};

/** Why a step was as it was. */
export function plainReason(reason: string): string {
  return REASONS[reason] ?? reason;
}

/** A step in lines: what a person reads who stops at it. */
export function describe(step: Step): string[] {
  const { prefill, decode_rows, candidate, running } = step;
  const lines = [`Step ${step.step}: ${step.kind}, ${span(step.took_us)}${step.failed ? ", failed" : ""}`];
  const parts = [];
  if (prefill.rows > 0) parts.push(`${prefill.rows} prompts, ${prefill.tokens} tokens computed`);
  if (decode_rows > 0) parts.push(`${decode_rows} rows decode`);
  if (step.draft_tokens) parts.push(`${step.draft_tokens} draft tokens`);
  if (step.preempted) parts.push(`${step.preempted} rows gave up their memory`);
  lines.push(parts.join("; "), `Why: ${plainReason(step.reason)}`);
  const traded = delta(step);
  if (traded) lines.push(`${traded} (Eq. 15-17)`);
  if (candidate) {
    const { rows, relqueries, tokens } = candidate;
    lines.push(`Could prefill ${rows} rows of ${relqueries} relQueries, ${tokens} tokens`);
  }
  lines.push(`Ran before: ${running.rows} rows of ${running.relqueries} relQueries`);
  const times = step.shares.map(({ tenant, took_us }) => `${tenant} ${span(took_us)}`);
  if (times.length > 0) lines.push(`Time: ${times.join(", ")}`);
  const gap = step.gap_us === undefined ? "" : `, ${span(step.gap_us)} after the step before`;
  lines.push(`Planned and applied in ${span(step.scheduling_us)}${gap}`);
  return lines;
}
