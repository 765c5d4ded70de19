import { describe, expect, it } from "vitest";

import type { Ended, Frame, RelQueryStatus, Snapshot, Step } from "../src/core/live/events";
import { type Bar, BARS_MAX, LiveModel, POINTS_MAX, STEPS_MAX } from "../src/core/live/model";
import { policyFacts, policyName } from "../src/core/live/policy";
import { hitRate, segments, shares } from "../src/core/live/summary";
import { delta, describe as read, periods, plainReason, priority, span } from "../src/core/live/words";
import { type Latency, type WhatIf, check, drawn, verdict } from "../src/core/what-if";

const hello = { policy: "marginal-work", configured_policy: "auto", backend: "engine", visible_to: "own", frame_ms: 100, snapshot_ms: 250, at_us: 0 } as const;

function step(number: number, more: Partial<Step> = {}): Step {
  return {
    step: number, kind: "decode", start_us: number * 10, took_us: 5, scheduling_us: 1, prefill: { rows: 0, tokens: 0 },
    decode_rows: 3, reason: "nothing waits", running: { relqueries: 1, rows: 3 },
    shares: [{ tenant: "you", prefill_rows: 0, prefill_tokens: 0, decode_rows: 3, took_us: 5 }], ...more,
  };
}

function status(id: string, more: Partial<RelQueryStatus> = {}): RelQueryStatus {
  return {
    id, tenant: "you", route: "cells", class: "interactive", place: 1, period: "waiting", arrival_us: 100,
    rows: { submitted: 9, waiting: 9, prefilling: 0, running: 0, ended: 0 }, priority: 5e8, unit: "ns", is_new: true, breakdown: "prompts", ...more,
  };
}

function snapshot(at_us: number, relqueries: RelQueryStatus[], more: Partial<Snapshot> = {}): Snapshot {
  return {
    at_us, relqueries, others: { relqueries: 0, rows_waiting: 0, rows_running: 0 }, rows_waiting: 0, rows_running: 0,
    kv: { total: 10, private: 1, shared: 2, independent: 0, pinned: 0, cached: 3, free: 4, host: 0, host_total: 0, held: [] },
    prompt_tokens: 0, prefix_hit_tokens: 0, output_tokens: 0, steps: 0, preemptions: 0, ...more,
  };
}

function frame(at_us: number, more: Partial<Frame> = {}): Frame {
  return { at_us, lost_steps: 0, steps: [], decisions: [], ended: [], ...more };
}

function ended(id: string, end_us: number, more: Partial<Ended> = {}): Ended {
  return {
    id, tenant: "you", route: "cells", class: "interactive", arrival_us: end_us - 60, end_us, outcome: "completed", rows: 9,
    failed_rows: 0, cancelled_rows: 0, prompt_tokens: 90, output_tokens: 9, periods: { waiting_us: 10, core_us: 20, tail_us: 30 }, ...more,
  };
}

const bar = (model: LiveModel, id: string): Bar => {
  const found = model.bars().find((one) => one.id === id);
  if (!found) throw new Error(`no bar ${id}`);
  return found;
};
const lengths = (one: Bar, now: number) => segments(one, now).map(({ kind, from, to }) => [kind, to - from]);

describe("a relQuery over time", () => {
  it("passes from waiting through core to tail, and its end has the measured periods", () => {
    const model = new LiveModel();
    model.greet(hello);
    model.take(frame(150, { snapshot: snapshot(150, [status("a", { why: "it came: prompts" })]) }));
    expect(lengths(bar(model, "a"), 150)).toEqual([["waiting", 50]]);
    model.take(frame(300, { snapshot: snapshot(300, [status("a", { period: "core", started_us: 160, prefilled_us: 250 })]) }));
    expect(lengths(bar(model, "a"), 300)).toEqual([["waiting", 60], ["core", 140]]);
    model.take(frame(400, { snapshot: snapshot(400, [status("a", { period: "tail", started_us: 160, prefilled_us: 350, why: "9 rows had their prompts computed" })]) }));
    expect(lengths(bar(model, "a"), 400)).toEqual([["waiting", 60], ["core", 190], ["tail", 50]]);
    expect(model.reasons("a")).toEqual(["9 rows had their prompts computed", "it came: prompts"]);
    model.take(frame(500, { ended: [ended("a", 460, { arrival_us: 400 })] }));
    expect(lengths(bar(model, "a"), 900)).toEqual([["waiting", 10], ["core", 20], ["tail", 30]]);
    expect(periods(bar(model, "a"), 900)).toBe("waiting 10 µs, core 20 µs, tail 30 µs");
  });

  it("that was called off before it began is one stretch", () => {
    const model = new LiveModel();
    const { periods: _, ...off } = ended("a", 90, { outcome: "cancelled", cancelled_rows: 7 });
    model.take(frame(100, { ended: [off] }));
    expect(lengths(bar(model, "a"), 500)).toEqual([["cancelled", 60]]);
    expect(bar(model, "a").done).toBe(2);
  });

  it("of which nothing is heard any more goes", () => {
    const model = new LiveModel();
    model.take(frame(1, { snapshot: snapshot(1, [status("a")]) }));
    for (let at = 2; at < 40; at += 1) model.take(frame(at, { snapshot: snapshot(at, []) }));
    expect(model.bars()).toEqual([]);
  });
});

describe("what the page keeps", () => {
  it("is bounded, and the living stay longest", () => {
    const model = new LiveModel();
    model.take(frame(1, { snapshot: snapshot(1, [status("alive")]) }));
    for (let at = 0; at < STEPS_MAX + 500; at += 1) {
      const news = { steps: [step(at + 1)], ended: [ended(`e${at}`, at + 100)], snapshot: snapshot(at + 100, [status("alive")]) };
      model.take(frame(at + 100, news));
    }
    expect(model.steps.length).toBe(STEPS_MAX);
    expect(model.steps.at(-1)?.step).toBe(STEPS_MAX + 500);
    expect(model.points.length).toBe(POINTS_MAX);
    expect(model.bars().length).toBe(BARS_MAX);
    expect(model.bars().some((one) => one.id === "alive")).toBe(true);
  });

  it("counts steps once, adds up what was lost, and starts anew with the server", () => {
    const model = new LiveModel();
    model.greet({ ...hello, at_us: 50 });
    model.take(frame(60, { steps: [step(1), step(2)], lost_steps: 3 }));
    model.greet({ ...hello, at_us: 70 });
    model.take(frame(80, { steps: [step(2), step(3)], lost_steps: 1 }));
    expect(model.steps.map((one) => one.step)).toEqual([1, 2, 3]);
    expect(model.lost).toBe(4);
    model.greet({ ...hello, at_us: 90, visible_to: "all" });
    expect(model.steps.length, "of another who looks nothing stays").toBe(0);
    model.take(frame(95, { steps: [step(9)] }));
    model.greet({ ...hello, at_us: 5, visible_to: "all" });
    expect([model.steps.length, model.lost, model.bars().length]).toEqual([0, 0, 0]);
  });
});

describe("figures", () => {
  it("shares count recent steps only", () => {
    const share = (tenant: string, took_us: number) => ({ tenant, prefill_rows: 0, prefill_tokens: 0, decode_rows: 1, took_us });
    const steps = [step(1, { shares: [share("you", 1_000)] }), step(50, { shares: [share("you", 10), share("others", 30)] })];
    expect(shares(steps, 100)).toEqual([{ tenant: "others", took_us: 30, part: 0.75 }, { tenant: "you", took_us: 10, part: 0.25 }]);
    expect(shares([], 0)).toEqual([]);
  });

  it("the hit rate is that between two looks", () => {
    const at = (at_us: number, prompt: number, hit: number) => ({ at_us, waiting: 0, running: 0, prompt, hit, output: 0, steps: 0 });
    expect(hitRate([at(0, 100, 100), at(1, 300, 150)])).toBe(0.25);
    expect(hitRate([at(0, 100, 100)])).toBeUndefined();
  });

  it("spans have a unit", () => {
    expect([12, 1_234, 56_789, 1_234_567, -98_500_000].map(span)).toEqual(["12 µs", "1.2 ms", "57 ms", "1.23 s", "-98.5 s"]);
  });

  it("priorities have the unit that they are in", () => {
    expect(priority(status("a"))).toBe("500 ms");
    expect(priority(status("a", { priority: 4_042_842_070_120, unit: "aged" }))).toBe("4,042,842, aged");
    expect(priority(status("a", { priority: 1_234, unit: "tokens" }))).toBe("1,234 tokens");
  });

  it("a step is told in words, with the trade-off and its sign", () => {
    const traded = step(4, {
      kind: "prefill", prefill: { rows: 2, tokens: 120 }, decode_rows: 0, preempted: 1, reason: "transition",
      delta: { total_us: -98_500, lost_us: 26_500, gained_us: 125_000 }, candidate: { relqueries: 1, rows: 2, tokens: 120 },
    });
    const text = read(traded).join("\n");
    expect(text).toContain("2 prompts, 120 tokens computed; 1 rows gave up their memory");
    expect(text).toContain("Δ = 27 ms lost − 125 ms gained = -99 ms (Eq. 15-17)");
    expect(delta(step(1))).toBeUndefined();
    expect(read(step(1)).join()).toContain("Why: no row was waiting, so answers went on");
    expect(plainReason("a reason of a newer server")).toBe("a reason of a newer server");
    expect(delta(step(1, { delta: { total_us: 151_500, lost_us: 26_500, gained_us: 125_000 } }))).toContain("lost + 125 ms");
  });
});

describe("the what-if", () => {
  const latency = (mean_ms: number): Latency =>
    ({ relqueries: 3, mean_ms, p50_ms: 1, p95_ms: 2, max_ms: 3, waiting_ms: 1, core_ms: 1, tail_ms: 1 });
  const replay = (policy: string, mean_ms: number) =>
    ({ policy, is_present: policy === "marginal-work", latency: latency(mean_ms), prefix_hits: 0, steps: 1 });
  const answer = (replays: WhatIf["replays"]): WhatIf =>
    ({
      span_ms: 61_000, relqueries: 3, rows: 40, left_out: 0, running: 0, measured: null, replays, error: null, pace: 1, timelines: [], took_ms: 1,
    });

  it("says both averages and how far apart they are", () => {
    const text = verdict(answer([replay("marginal-work", 800), replay("fcfs", 1_200), replay("relserve", 800.5)]));
    expect(text).toBe(
      '3 relQueries of 40 rows in 61.00 s: average latency 800 ms under "Least work added first", as now; ' +
        'under "First come, first served" 1.20 s, 50 % longer; under "Least time left first" 801 ms, the same.',
    );
  });

  it("says that there is nothing", () => {
    expect(verdict(answer([]))).toContain("nothing to replay");
  });

  it("says how far the simulator is off, and when that is far", () => {
    const off = (error: number | null) =>
      check({ ...answer([replay("marginal-work", 75)]), measured: latency(72), error });
    expect(off(75 / 72 - 1)).toBe("As it was: 72 ms were measured, where the simulator says 75 ms, 4 % too long.");
    expect(off(-0.5)).toContain("50 % too short. It is far off");
    expect(off(0.001)).toContain("no more than rounding apart");
    expect(check(answer([replay("fcfs", 1)]))).toBe("");
  });

  it("draws both timelines of what took longest", () => {
    const spans = (waiting_ms: number, core_ms: number, tail_ms: number) => ({ waiting_ms, core_ms, tail_ms });
    const one = (id: string, arrival_ms: number, long: number) => ({
      id, tenant: "you", route: "cells", class: "interactive", label: { column: id }, rows: 3, arrival_ms,
      measured: spans(long, 1, 2), replays: [spans(long, 1, 2), spans(2 * long, 1, 0)],
    });
    const timelines = [one("A", 0, 5), ...Array.from({ length: 20 }, (_, at) => one(`short ${at}`, 3, 1)), one("B", 10, 9)];
    const lanes = drawn({ ...answer([replay("marginal-work", 5), replay("fcfs", 9)]), timelines }, 1);
    expect(lanes.relqueries).toBe(15);
    expect(lanes.names.slice(0, 4)).toEqual(["A", "as it was", "simulated", "First come, first served"]);
    expect([lanes.names.length, lanes.of.slice(0, 5)]).toEqual([60, ["A", "A", "A", "A", "short 0"]]);
    expect([...lanes.heads].slice(0, 3)).toEqual([0, 4, 8]);
    expect(lanes.pieces.filter(({ lane }) => lane === 3)).toEqual([
      { lane: 3, kind: "waiting", from: 0, to: 10_000 }, { lane: 3, kind: "core", from: 10_000, to: 11_000 },
    ]);
    expect(lanes.to).toBe(29_000);
    const off = drawn({ ...answer([replay("fcfs", 9)]), timelines: [{ ...one("C", 0, 1), measured: null }] }, 0);
    expect(off.names).toEqual(["C", "simulated"]);
  });
});

describe("the policy", () => {
  const chosen = snapshot(1, [], { policy: "relserve", choice: "relserve 1.2 s: stays with relserve" });

  it("is named with who chose it", () => {
    expect(policyName(undefined, undefined)).toBe("–");
    expect(policyName(hello, undefined)).toBe("Least work added first, chosen by the server");
    expect(policyName(hello, chosen)).toBe("Least time left first, chosen by the server");
    expect(policyName({ ...hello, configured_policy: "fcfs" }, { ...chosen, policy: "fcfs" })).toBe("First come, first served");
  });

  it("is explained, and so is what it cannot do in front of servers", () => {
    expect(policyFacts(hello, undefined)).toEqual([]);
    expect(policyFacts({ ...hello, limits_of_policy: ["no steps there"] }, chosen)).toEqual([
      ["Why this policy", "relserve 1.2 s: stays with relserve"],
      ["In front of servers", "no steps there"],
    ]);
  });
});
