// The live view's sentences: times, priorities, relQueries and steps in words.

import { decimal, t } from "../../text";
import type { RelQueryStatus, Step } from "./events";
import type { Bar } from "./model";
import { segments } from "./summary";

/** A priority in words; the lower goes first. */
export function priority(one: RelQueryStatus): string {
  if (one.unit === "ns") return span(one.priority / 1e3);
  return one.unit === "aged" ? t.live.aged(Math.round(one.priority / 1e6)) : t.live.tokens(Math.round(one.priority));
}

/** A stretch of time in words. */
export function span(us: number): string {
  if (Math.abs(us) >= 119.5e6) return `${Math.trunc(Math.round(us / 1e6) / 60)} min ${Math.abs(Math.round(us / 1e6) % 60)} s`;
  if (Math.abs(us) < 1_000) return `${Math.round(us)} µs`;
  if (Math.abs(us) < 1e6) return `${decimal(us / 1e3, Math.abs(us) < 1e4 ? 1 : 0)} ms`;
  return `${decimal(us / 1e6, Math.abs(us) < 1e7 ? 2 : 1)} s`;
}

/** A time beside the present in words. */
export function ago(us: number, now: number): string {
  return us >= now - 500 ? t.live.now : `−${span(now - us)}`;
}

/** How long ago something was, for a line of a list. */
export function since(us: number, now: number): string {
  return us >= now - 500 ? t.live.now : t.live.ago(span(now - us));
}

/** The periods of a bar in words. */
export function periods(bar: Bar, now: number): string {
  const parts = segments(bar, now).map(({ kind, from, to }) => `${t.live.periods[kind]} ${span(to - from)}`);
  return parts.join(", ") || t.live.justCame;
}

/** The arranger's trade-off in words (RelServe, Eq. 15-17). */
export function delta(step: Step): string | undefined {
  if (!step.delta) return undefined;
  const { total_us, lost_us, gained_us } = step.delta;
  // The server's numbers are rounded.
  const isGain = gained_us > 2 && Math.abs(total_us - lost_us - gained_us) <= 2;
  return (isGain ? t.live.gained : t.live.notGained)(span(lost_us), span(gained_us), span(total_us));
}

const REASONS: Readonly<Record<string, string>> = t.live.reasons;
const BOTH: keyof typeof t.live.reasons = "decodes with a chunk of prompts";

/** Why a step was as it was. */
export function plainReason(reason: string, kind?: Step["kind"]): string {
  // One reason stands for every step that may take prompts beside answers, whichever of them there were.
  const isBoth = reason === BOTH;
  if (isBoth && kind === "prefill") return t.live.onlyPrompts;
  if (isBoth && kind === "decode") return t.live.onlyAnswers;
  return REASONS[reason] ?? reason;
}

/** The reason in a decision as the server tells it to programs (`step 6: nothing waits; front relQuery …`), in plain words. */
export function plainDecision(decision: string): string {
  const [, reason] = /^step \d+: ([^;]+)/.exec(decision) ?? [];
  return reason === undefined ? decision : plainReason(reason.trim());
}

/** A step in lines: what a person reads who stops at it. */
export function describe(step: Step): string[] {
  const { prefill, decode_rows, candidate, running } = step;
  const lines = [`${t.live.step(step.step, t.live.kinds[step.kind], span(step.took_us))}${step.failed ? t.live.stepFailed : ""}`];
  const parts = [];
  if (prefill.rows > 0) parts.push(t.live.stepPrompts(prefill.rows, prefill.tokens));
  if (decode_rows > 0) parts.push(t.live.stepDecodes(decode_rows));
  if (step.draft_tokens) parts.push(t.live.stepDrafts(step.draft_tokens));
  if (step.preempted) parts.push(t.live.stepPreempted(step.preempted));
  lines.push(parts.join("; "), t.live.why(plainReason(step.reason, step.kind)));
  const traded = delta(step);
  if (traded) lines.push(`${traded} (Eq. 15-17)`);
  if (candidate) {
    const { rows, relqueries, tokens } = candidate;
    lines.push(t.live.couldPrefill(rows, relqueries, tokens));
  }
  lines.push(t.live.ranBefore(running.rows, running.relqueries));
  const times = step.shares.map(({ tenant, took_us }) => `${tenant} ${span(took_us)}`);
  if (times.length > 0) lines.push(t.live.times(times.join(", ")));
  const planned = span(step.scheduling_us);
  lines.push(step.gap_us === undefined ? t.live.planned(planned) : t.live.plannedAfter(planned, span(step.gap_us)));
  return lines;
}
