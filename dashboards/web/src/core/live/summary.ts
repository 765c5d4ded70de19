// What is drawn of steps, bars and points: stretches of time and shares. Functions over plain data.

import type { Period, Step } from "./events";
import type { Bar, Point } from "./model";

/** A stretch of a bar. */
export interface Segment {
  kind: Period | "cancelled";
  from: number;
  to: number;
}

/** The stretches of a relQuery's time until `now` (RelServe, Eq. 2). */
export function segments(bar: Bar, now: number): Segment[] {
  const end = bar.end_us ?? Math.max(now, bar.arrival_us);
  if (bar.period === "cancelled" && bar.started_us === undefined) {
    return [{ kind: "cancelled", from: bar.arrival_us, to: end }];
  }
  const started = Math.min(bar.started_us ?? end, end);
  const isCore = bar.period === "waiting" || bar.period === "core";
  const prefilled = isCore ? end : Math.max(started, Math.min(bar.prefilled_us ?? end, end));
  const all: Segment[] = [
    { kind: "waiting", from: bar.arrival_us, to: started },
    { kind: "core", from: started, to: prefilled },
    { kind: bar.period === "cancelled" ? "cancelled" : "tail", from: prefilled, to: end },
  ];
  return all.filter((part) => part.to > part.from);
}

/** A tenant's time of the machine. */
export interface TenantShare {
  tenant: string;
  took_us: number;
  /** Of all tenants' time. */
  part: number;
}

/** Each one's share of the machine's time, of those steps that began after `since`; the greatest first. */
export function shares(steps: readonly Step[], since: number): TenantShare[] {
  const sums = new Map<string, number>();
  let all = 0;
  for (const step of steps) {
    if (step.start_us < since) continue;
    for (const { tenant, took_us } of step.shares) {
      sums.set(tenant, (sums.get(tenant) ?? 0) + took_us);
      all += took_us;
    }
  }
  const parts = [...sums].map(([tenant, took_us]) => ({ tenant, took_us, part: all > 0 ? took_us / all : 0 }));
  return parts.sort((a, b) => b.took_us - a.took_us);
}

/**
 * Share of prompt tokens that the prefix cache supplied between the first and the last point; none where none
 * were asked.
 */
export function hitRate(points: readonly Point[]): number | undefined {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last || last.prompt <= first.prompt) return undefined;
  return (last.hit - first.hit) / (last.prompt - first.prompt);
}
