// What calls will cost, by hand.

import { fitOf } from "relserve-client/budget";
import type { Call } from "relserve-client/calls";
import { estimate } from "relserve-client/estimate";
import { expect, test } from "vitest";

const SERVED = [{ name: "rate", template: "x".repeat(40), max_tokens: 4 }, { name: "ask", template: "{prompt}", max_tokens: 64 }];
const rate = (text: string, ...args: Call["args"]): Call => ({ function: "rate", args: [text, ...args] });
const COSTS = {
  cost: { prefill_ns_per_token: 1_000, prefill_ns: 100_000, decode_ns_per_sequence: 10_000, decode_ns: 500_000 },
  limits: { step_tokens_max: 10, sequences_max: 2 },
};

test("each row counts its own text, and what rows share is computed once", () => {
  const calls = [rate("y".repeat(20)), rate("z".repeat(18)), rate("y".repeat(4), "size of it.")];
  // 5 + 5 + 1 of their own, twice 10 of the template, once 10 with 3 more of the criterion (51 characters).
  expect(estimate(calls, SERVED, {})).toEqual({
    rows: 3, promptTokens: 5 + 5 + 1 + 10 + 10 + 13, ownTokens: 11, computedTokens: 11 + 10 + 13, outputTokensMax: 12, ms: undefined,
  });
});

test("time is what the server has fitted: tokens and steps of prompts, then answers side by side", () => {
  const { ms } = estimate([rate("y".repeat(20)), rate("z".repeat(20))], SERVED, COSTS);
  // 20 computed tokens in 2 steps: 20 us and 200 us. 8 answer tokens, two at a time: 80 us, and 4 steps of 500 us.
  expect(ms?.least).toBeCloseTo(0.22);
  expect(ms?.most).toBeCloseTo(0.22 + 0.08 + 2);
});

test("a server that tells no costs, or has fitted none, leaves the time unknown", () => {
  const none = { ...COSTS, cost: { ...COSTS.cost, prefill_ns_per_token: 0 } };
  expect(estimate([rate("a")], SERVED, none).ms).toBeUndefined();
  expect(estimate([{ function: "new", args: [] }], SERVED, COSTS).rows).toBe(1);
});

test("a budget has room for calls, has it only for short answers, or surely has none", () => {
  // 10 computed tokens of prompts, 20 of the template once, 4 tokens of an answer each.
  const wanted = estimate([rate("y".repeat(20)), rate("z".repeat(20))], SERVED, {});
  expect([wanted.computedTokens, wanted.outputTokensMax]).toEqual([20, 8]);
  const fit = (used: number, max: number | null) => fitOf(wanted, { used, max, setting: null });
  expect(fit(0, null)).toEqual({ kind: "unlimited" });
  expect(fit(2, 30)).toEqual({ kind: "fits", left: 28 });
  expect(fit(3, 30)).toEqual({ kind: "may-not", left: 27 });
  expect(fit(10, 30)).toEqual({ kind: "may-not", left: 20 });
  expect(fit(11, 30)).toEqual({ kind: "over", left: 19 });
  expect(fit(99, 30)).toEqual({ kind: "over", left: 0 });
});
