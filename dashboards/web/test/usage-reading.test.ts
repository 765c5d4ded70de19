// Usage that comes in pages: read on until it is whole, or as far as was asked for, and summed either way.

import { expect, test } from "vitest";

import type { DayUsage } from "../src/core/usage-days";
import { PAGES_AT_ONCE, type UsagePage, UsageReading, UsageReadings, isReadingDue } from "../src/core/usage-reading";

const TODAY = 20_780;
const NOW = TODAY * 86_400_000 + 3_600_000;

const entry = (day: number, tenant: string, tokens: number): DayUsage => ({
  day, tenant, model: "m", route: "cells", requests: 1, rows: 2, prompt_tokens: tokens, cached_tokens: 0, completion_tokens: 0,
});

/** A server with these pages, the newest first; what it was asked for goes into `asked`. */
function server(pages: readonly DayUsage[][], asked: (string | undefined)[] = []) {
  return async (_days: number, before: string | undefined): Promise<UsagePage> => {
    asked.push(before);
    const at = before === undefined ? 0 : Number(before.slice("page ".length));
    return { data: pages[at] ?? [], before: at + 1 < pages.length ? `page ${at + 1}` : null };
  };
}

test("pages are read on until the span is whole, and a tenant of several is one sum", async () => {
  const asked: (string | undefined)[] = [];
  const pages = [[entry(TODAY, "a", 5), entry(TODAY, "b", 1)], [entry(TODAY, "c", 7), entry(TODAY - 1, "a", 6)], [entry(TODAY - 2, "a", 4)]];
  const reading = new UsageReading(server(pages, asked), 3, () => NOW);
  await reading.readOn(PAGES_AT_ONCE);
  expect(asked).toEqual([undefined, "page 1", "page 2"]);
  expect([reading.isWhole, reading.pages, reading.isReading]).toEqual([true, 3, false]);
  expect(reading.series("tenant").map(({ name, tokens, days }) => [name, tokens, days]))
    .toEqual([["a", 15, [4, 6, 5]], ["c", 7, [0, 0, 7]], ["b", 1, [0, 0, 1]]]);
  expect(reading.series("route").map(({ name, tokens, requests }) => [name, tokens, requests])).toEqual([["cells", 23, 5]]);
});

test("what is bounded is not whole, says how far it reaches, and goes on where it stood", async () => {
  const asked: (string | undefined)[] = [];
  const pages = [[entry(TODAY, "a", 1)], [entry(TODAY - 1, "a", 2)], [entry(TODAY - 2, "a", 4)]];
  const reading = new UsageReading(server(pages, asked), 7, () => NOW);
  await reading.readOn(2);
  expect([reading.isWhole, reading.oldestDay, reading.series("tenant")[0]?.tokens]).toEqual([false, TODAY - 1, 3]);
  await reading.readOn(2);
  expect([reading.isWhole, reading.oldestDay, reading.series("tenant")[0]?.tokens]).toEqual([true, TODAY - 2, 7]);
  expect(asked).toEqual([undefined, "page 1", "page 2"]);
  await reading.readOn(2);
  expect(asked).toHaveLength(3);
});

test("a server whose pages never end is left after as many as were asked for", async () => {
  const reading = new UsageReading(async () => ({ data: [entry(TODAY, "a", 1)], before: "the same" }), 7, () => NOW);
  await reading.readOn(PAGES_AT_ONCE);
  expect([reading.pages, reading.isWhole]).toEqual([PAGES_AT_ONCE, false]);
});

test("a page that fails is thrown, what came before it stays, and it can be asked for again", async () => {
  const good = server([[entry(TODAY, "a", 1)], [entry(TODAY - 1, "a", 2)]]);
  let failures = 1;
  const reading = new UsageReading(async (days, before) => {
    if (before !== undefined && failures-- > 0) throw new Error("a 503");
    return good(days, before);
  }, 7, () => NOW);
  await expect(reading.readOn(5)).rejects.toThrow("a 503");
  expect([reading.isReading, reading.isWhole, reading.series("tenant")[0]?.tokens]).toEqual([false, false, 1]);
  await reading.readOn(5);
  expect([reading.isWhole, reading.series("tenant")[0]?.tokens]).toEqual([true, 3]);
});

test("a reading that nobody wants any more ends with its page", async () => {
  const asked: (string | undefined)[] = [];
  const reading = new UsageReading(server([[], [], []], asked), 7, () => NOW);
  await reading.readOn(5, () => asked.length < 1);
  expect(asked).toHaveLength(1);
});

test("one page is read each time, many of them not as often, and none twice at once", async () => {
  expect(isReadingDue(undefined, 7, NOW)).toBe(true);
  const one = new UsageReading(server([[]]), 7, () => NOW);
  await one.readOn(5);
  expect(isReadingDue(one, 7, NOW + 10_000)).toBe(true);
  const many = new UsageReading(server([[], []]), 7, () => NOW);
  const reading = many.readOn(5);
  expect(isReadingDue(many, 7, NOW + 600_000)).toBe(false);
  expect(isReadingDue(many, 30, NOW)).toBe(true);
  await reading;
  expect(isReadingDue(many, 7, NOW + 10_000)).toBe(false);
  expect(isReadingDue(many, 7, NOW + 300_000)).toBe(true);
});

test("a reading that goes on past midnight is not whole, and has no more pages all the same", async () => {
  const midnight = (TODAY + 1) * 86_400_000;
  let now = midnight - 1;
  const pages = server([[entry(TODAY, "a", 1)], [entry(TODAY - 1, "a", 2)]]);
  const reading = new UsageReading((days, before) => {
    if (before !== undefined) now = midnight;
    return pages(days, before);
  }, 7, () => now);
  await reading.readOn(1);
  expect([reading.isWhole, reading.hasMore]).toEqual([false, true]);
  await reading.readOn(1);
  expect([reading.isWhole, reading.hasMore, reading.today]).toEqual([false, false, TODAY]);
  expect(isReadingDue(reading, 7, now)).toBe(true);
  const again = new UsageReading(pages, 7, () => now);
  await again.readOn(5);
  expect([again.isWhole, again.today]).toEqual([true, TODAY + 1]);
});

test("a reading that fails before its first page leaves the last in its place", async () => {
  const asked: (string | undefined)[] = [];
  const pages = Array.from({ length: 25 }, (_, at) => [entry(TODAY - at, "a", 1)]);
  const good = server(pages, asked);
  let isAway = false;
  const drawn: [number, number][] = [];
  const readings = new UsageReadings(async (days, before) => {
    if (isAway) throw new Error("a 503");
    return good(days, before);
  }, () => NOW + 1_000_000 * asked.length, (reading) => drawn.push([reading.span, reading.pages]));
  await readings.refresh(30);
  await readings.readOlder();
  expect(drawn).toEqual([[30, 10], [30, 20]]);
  isAway = true;
  for (const span of [30, 90]) await expect(readings.refresh(span)).rejects.toThrow("a 503");
  expect(drawn).toHaveLength(2);
  isAway = false;
  await readings.readOlder();
  expect(drawn.at(-1)).toEqual([30, 25]);
  // As far as it was read before, not anew from the start.
  await readings.refresh(30);
  expect(drawn.at(-1)).toEqual([30, 25]);
});

test("a span that is asked for while another is read takes its place", async () => {
  const waiting: (() => void)[] = [];
  const readings = new UsageReadings(async (days) => {
    await new Promise<void>((done) => waiting.push(done));
    return { data: [entry(TODAY, "a", days)], before: null };
  }, () => NOW, (reading) => drawn.push(reading.span));
  const drawn: number[] = [];
  const first = readings.refresh(7);
  const twice = readings.refresh(7);
  const second = readings.refresh(30);
  expect(waiting).toHaveLength(2);
  waiting[1]?.();
  await second;
  waiting[0]?.();
  await Promise.all([first, twice]);
  expect(drawn).toEqual([30]);
});
