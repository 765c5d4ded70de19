// Usage over time: the days of a span, what was used on each, and by whom.

/** A sum of usage of a day, counted from 1970-01-01. */
export interface DayUsage {
  day: number;
  tenant: string;
  model: string;
  route: string;
  requests: number;
  rows: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
}

/** What usage is summed by. */
export const USAGE_KEYS = ["tenant", "model", "route"] as const;
export type UsageKey = (typeof USAGE_KEYS)[number];

/** Tokens that were read and written. */
export const tokensOf = (entry: DayUsage) => entry.prompt_tokens + entry.completion_tokens;

/** A group's tokens, and those of each day of the span. */
export interface UsageSeries {
  name: string;
  requests: number;
  rows: number;
  tokens: number;
  cached: number;
  days: number[];
}

/** Adds usage to the groups of a span that ends with `today`. Days without usage are 0. */
export function addUsage(
  groups: Map<string, UsageSeries>, entries: readonly DayUsage[], by: UsageKey, span: number, today: number,
): void {
  for (const entry of entries) {
    const at = entry.day - (today - span + 1);
    if (at < 0 || at >= span) continue;
    const name = entry[by];
    const group = groups.get(name) ?? { name, requests: 0, rows: 0, tokens: 0, cached: 0, days: new Array<number>(span).fill(0) };
    group.requests += entry.requests;
    group.rows += entry.rows;
    group.tokens += tokensOf(entry);
    group.cached += entry.cached_tokens;
    group.days[at] = (group.days[at] ?? 0) + tokensOf(entry);
    groups.set(name, group);
  }
}

/** The groups, the largest first. */
export function largestFirst(groups: ReadonlyMap<string, UsageSeries>): UsageSeries[] {
  return [...groups.values()].sort((a, b) => b.tokens - a.tokens || a.name.localeCompare(b.name));
}

/** A day as people write it, such as 2026-11-23. */
export function dayName(day: number): string {
  return new Date(day * 86_400_000).toISOString().slice(0, 10);
}
