// Brakes: a formula dragged over a thousand rows, or a server that answers too late, must not use up the day's
// requests (20,000 for a private account, 100,000 for a Workspace account). The counts live in the cache, which
// has no atomic addition: with many formulas at once they may lag a little, which is all a brake needs.

import type { World } from "./google";

/** The limits. */
export interface Brakes {
  /** Requests in a minute. */
  perMinute: number;
  /** Requests in a day: below the quota, so that other scripts of the user go on. */
  perDay: number;
  /** Questions in a minute that had no whole answer in time. */
  latePerMinute: number;
}

/** What the add-in uses. */
export const BRAKES: Brakes = { perMinute: 300, perDay: 18_000, latePerMinute: 10 };

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const MINUTES_KEPT_S = 150;
/** The longest that the cache keeps anything. */
export const CACHE_S = 21_600;

/** Why nothing is asked now; `undefined`: ask. */
export function refusal(world: World, brakes: Brakes = BRAKES): string | undefined {
  const now = world.now();
  if (recent(world, "late", now) >= brakes.latePerMinute) {
    return `${brakes.latePerMinute} requests in a minute had no answer in time; nothing new is asked for a minute`;
  }
  if (recent(world, "asked", now) >= brakes.perMinute) {
    return `more than ${brakes.perMinute} requests in a minute; use one formula over the range, such as =AI_CLASSIFY(A2:A1000, "good,bad")`;
  }
  if (read(world, dayKey(now)) >= brakes.perDay) {
    return `more than ${brakes.perDay} requests today, and Google allows an account only so many; go on tomorrow`;
  }
  return undefined;
}

/**
 * Counts requests that begin now; those that ask (and do not only look at a ticket) count as late until `inTime`
 * takes that back: an execution that Google kills after 30 seconds cannot say so itself.
 */
export function begin(world: World, requests: number, questions: number): { inTime(questions: number): void } {
  const now = world.now();
  add(world, minuteKey("asked", now), requests, MINUTES_KEPT_S);
  add(world, minuteKey("late", now), questions, MINUTES_KEPT_S);
  add(world, dayKey(now), requests, CACHE_S);
  return { inTime: (answered) => add(world, minuteKey("late", now), -answered, MINUTES_KEPT_S) };
}

/** This minute and the one before. */
function recent(world: World, what: string, now: number): number {
  return read(world, minuteKey(what, now)) + read(world, minuteKey(what, now - MINUTE_MS));
}

function minuteKey(what: string, now: number): string {
  return `relserve:${what}:${Math.floor(now / MINUTE_MS)}`;
}

function dayKey(now: number): string {
  return `relserve:day:${Math.floor(now / DAY_MS)}`;
}

function read(world: World, key: string): number {
  return Number(world.cache.get(key) ?? 0);
}

function add(world: World, key: string, count: number, seconds: number): void {
  world.cache.put(key, String(Math.max(0, read(world, key) + count)), seconds);
}
