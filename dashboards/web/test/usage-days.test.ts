// Usage over time, by whatever it is summed by.

import { expect, test } from "vitest";

import { type DayUsage, type UsageKey, type UsageSeries, addUsage, dayName, largestFirst } from "../src/core/usage-days";

const entry = (day: number, tenant: string, route: string, tokens: number): DayUsage => ({
  day, tenant, model: "m", route, requests: 1, rows: 2, prompt_tokens: tokens - 1, cached_tokens: 3, completion_tokens: 1,
});

const seriesOf = (entries: readonly DayUsage[], by: UsageKey, span: number, today: number) => {
  const groups = new Map<string, UsageSeries>();
  // What comes in two pages is one sum.
  addUsage(groups, entries.slice(0, 1), by, span, today);
  addUsage(groups, entries.slice(1), by, span, today);
  return largestFirst(groups);
};

test("groups are summed over the days of the span, the largest first", () => {
  const entries = [entry(10, "a", "cells", 5), entry(12, "a", "relqueries", 6), entry(12, "b", "cells", 90), entry(9, "b", "cells", 1_000)];
  const byTenant = seriesOf(entries, "tenant", 3, 12);
  expect(byTenant.map(({ name, tokens, days }) => [name, tokens, days])).toEqual([["b", 90, [0, 0, 90]], ["a", 11, [5, 0, 6]]]);
  expect(byTenant[1]).toMatchObject({ requests: 2, rows: 4, cached: 6 });
  expect(seriesOf(entries, "route", 3, 12).map(({ name }) => name)).toEqual(["cells", "relqueries"]);
});

test("a day has its date", () => {
  expect(dayName(20_780)).toBe("2026-11-23");
});
