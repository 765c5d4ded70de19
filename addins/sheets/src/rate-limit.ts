// Limits on requests: a formula dragged over a thousand rows, or a server that answers too late, must not use up the day's
// requests (20,000 for a private account, 100,000 for a Workspace account). The counts live in the cache, which
// has no atomic addition: with many formulas at once they may lag a little, which is all that a limit needs.

import type { ScriptHost } from "./google";

/** The limits. */
export interface RateLimits {
  /** Requests in a minute. */
  perMinute: number;
  /** Requests in a day: below the quota, so that other scripts of the user go on. */
  perDay: number;
  /** Questions in a minute that had no whole answer in time. */
  latePerMinute: number;
}

/** What the add-in uses. */
export const RATE_LIMITS: RateLimits = { perMinute: 300, perDay: 18_000, latePerMinute: 10 };

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const MINUTES_KEPT_S = 150;
/** The longest that the cache keeps anything. */
export const CACHE_S = 21_600;

/** Why nothing is asked now; `undefined`: ask. */
export function refusal(host: ScriptHost, limits: RateLimits = RATE_LIMITS): string | undefined {
  const now = host.now();
  if (recent(host, "late", now) >= limits.latePerMinute) {
    return `${limits.latePerMinute} requests in a minute had no answer in time; nothing new is asked for a minute`;
  }
  if (recent(host, "asked", now) >= limits.perMinute) {
    return `more than ${limits.perMinute} requests in a minute; use one formula over the range, such as =AI_CLASSIFY(A2:A1000, "good,bad")`;
  }
  if (read(host, dayKey(now)) >= limits.perDay) {
    return `more than ${limits.perDay} requests today, and Google allows an account only so many; go on tomorrow`;
  }
  return undefined;
}

/**
 * Counts requests that begin now; those that ask (and do not only look at a ticket) count as late until `inTime`
 * takes that back: an execution that Google kills after 30 seconds cannot say so itself.
 */
export function countRequests(host: ScriptHost, requests: number, questions: number): { inTime(questions: number): void } {
  const now = host.now();
  add(host, minuteKey("asked", now), requests, MINUTES_KEPT_S);
  add(host, minuteKey("late", now), questions, MINUTES_KEPT_S);
  add(host, dayKey(now), requests, CACHE_S);
  return { inTime: (answered) => add(host, minuteKey("late", now), -answered, MINUTES_KEPT_S) };
}

/** This minute and the one before. */
function recent(host: ScriptHost, what: string, now: number): number {
  return read(host, minuteKey(what, now)) + read(host, minuteKey(what, now - MINUTE_MS));
}

function minuteKey(what: string, now: number): string {
  return `relserve:${what}:${Math.floor(now / MINUTE_MS)}`;
}

function dayKey(now: number): string {
  return `relserve:day:${Math.floor(now / DAY_MS)}`;
}

function read(host: ScriptHost, key: string): number {
  return Number(host.cache.get(key) ?? 0);
}

function add(host: ScriptHost, key: string, count: number, seconds: number): void {
  host.cache.put(key, String(Math.max(0, read(host, key) + count)), seconds);
}
