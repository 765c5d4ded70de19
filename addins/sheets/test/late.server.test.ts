// A server that is not ready in time: its ticket. RELSERVE_LATE is set where the server holds answers back (the test of
// the gateway does that) or is slow enough for 500 summaries not to be there after 60 milliseconds.

import { afterAll, describe, expect, test } from "vitest";

import { BOUNDS, fetchAnswers } from "../src/fetch-answers";
import { type TestHost, urlFetchApp, testHost } from "./google";

const url = process.env.RELSERVE_URL ?? "";
const key = process.env.RELSERVE_KEY ?? "";

describe.skipIf(!url || !process.env.RELSERVE_LATE)("against a server that is late", () => {
  const http = urlFetchApp();
  afterAll(() => http.stop());

  test("what the deadline cut off is fetched by its ticket, without asking again", () => {
    const base: TestHost = testHost(() => ({ status: 500, body: "" }));
    const at = { ...base, fetchAll: http.fetchAll, now: () => Date.now(), sleep: pause };
    const calls = Array.from({ length: 500 }, (_, i) => ({ function: "summarize", args: [`text ${i} of the late`] }));
    const hasty = { ...BOUNDS, workMs: 60, leastMs: 1 };
    const soon = fetchAnswers(at, { url, key }, calls, at.now(), hasty);
    expect(soon.size).toBeLessThan(500);
    expect(http.asked.map(({ method }) => method)).toEqual(["post"]);
    const patient = { ...BOUNDS, workMs: 120_000, lookMs: 50 };
    const whole = fetchAnswers(at, { url, key }, calls, at.now(), patient);
    expect(whole.size).toBe(500);
    expect([...whole.values()].every(({ error }) => error === undefined)).toBe(true);
    expect(new Set(http.asked.slice(1).map(({ method }) => method))).toEqual(new Set(["get"]));
  });
});

function pause(milliseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}
