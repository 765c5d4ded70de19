import { labelled, LABELS_MAX } from "relserve-client/labels";
import { describe, expect, it } from "vitest";

import { cellId } from "../src/core/address";
import { cellLabel } from "../src/core/cell-label";
import type { Decision, Frame, Step } from "../src/core/live/events";
import { batchRuns, batchWords } from "../src/core/live/batches";
import { asAt, firstArrival, firstWindow, hasTenants, laneHeight, lanesAt, within } from "../src/core/live/lanes";
import { type Bar, DECISIONS_MAX, LiveModel } from "../src/core/live/model";
import { detail, noun, title } from "../src/core/live/names";
import { Replay } from "../src/core/live/replay";
import { seconds, sentence } from "../src/core/live/sentences";
import { plainDecision, since, span } from "../src/core/live/words";

const names = { id: "123456", tenant: "you", route: "cells", class: "interactive" };

describe("names", () => {
  it("are those that people know", () => {
    const label = { workbook: "Reviews", sheet: "Sheet 1", column: "C Sentiment", formula: "=AI.RATE(A2)" };
    expect(title({ ...names, label })).toBe("C Sentiment, Reviews · Sheet 1");
    expect(detail({ ...names, request: "77", label })).toBe("=AI.RATE(A2) · cells");
    expect(title({ ...names, label: { workbook: "Reviews" } })).toBe("Reviews");
    expect(title({ ...names, route: "sql", label: { sql: "SELECT 1" } })).toBe("SELECT 1");
    expect(title({ ...names, route: "sql", label: { sql: "S".repeat(99) } })).toBe(`${"S".repeat(59)}…`);
    expect(title({ ...names, route: "chat", label: { client: "OpenAI/Python 1.55" } })).toBe("OpenAI/Python 1.55, chat …3456");
    expect(title({ ...names, route: "" })).toBe("relQuery …3456");
    expect([noun(names, 1), noun({ route: "sql" }, 2), noun({ route: "relqueries", label }, 2)]).toEqual(["cell", "rows", "cells"]);
  });

  it("of a cell are its workbook, its column with its title, and its formula", () => {
    const typed = [["Review", "Sentiment"], ["good", "=AI.RATE(A2)"]];
    const sheet = { raw: (row: number, column: number) => typed[row]?.[column] ?? "" };
    expect(cellLabel("Reviews", sheet, cellId(1, 1))).toEqual({ workbook: "Reviews", column: "B Sentiment", formula: "=AI.RATE(A2)" });
    expect(cellLabel("Reviews", sheet, cellId(0, 1)).column).toBe("B");
    const formulas = { raw: () => "=1" };
    expect(cellLabel("R", formulas, cellId(1, 0)).column).toBe("A");
  });

  it("go once for all calls that have them, and no more than the server takes", () => {
    const call = { function: "rate", args: ["x"] };
    const label = (asker: number) => ({ column: asker < 2 ? "B" : "C" });
    const { calls, labels } = labelled([call, call, call, call], [0, 1, 2, undefined], label);
    expect(labels).toEqual([{ column: "B" }, { column: "C" }]);
    expect(calls.map((one) => one.label)).toEqual([0, 0, 1, undefined]);
    const many = Array.from({ length: LABELS_MAX + 5 }, (_, asker) => asker);
    const most = labelled(many.map(() => call), many, (asker) => ({ column: String(asker) }));
    expect([most.labels.length, most.calls.at(-1)?.label, most.calls[255]?.label]).toEqual([LABELS_MAX, undefined, 255]);
  });
});

describe("a decision", () => {
  const mine = { ...names, arrival_us: 500, rows: 5, waiting_rows: 0, work_us: 200_000 };
  const bobs = { ...names, id: "9", tenant: "Bob", arrival_us: 100, rows: 5_000, waiting_rows: 5_000, work_us: 41_000_000 };

  it("is one plain sentence", () => {
    const label = { column: "C" };
    expect(sentence({ at_us: 1, policy: "relserve", first: { ...mine, label }, rival: { ...bobs, label: { column: "D", workbook: "Sales" } } })).toBe(
      "Your 5 cells (C) went before Bob's 5,000 cells (D, Sales): 0.2 s of work left against 41 s.",
    );
    expect(sentence({ at_us: 1, policy: "relserve", first: { ...mine, rows: 1, label } })).toBe("Your 1 cell (C) began: nothing else was waiting.");
  });

  it("names no other tenant where its name is not told", () => {
    const { arrival_us, rows, waiting_rows, work_us } = bobs;
    const other = { arrival_us, rows, waiting_rows, work_us };
    const label = { column: "C" };
    expect(sentence({ at_us: 1, policy: "relserve", first: { ...mine, label }, rival: other })).toBe(
      "Your 5 cells (C) went before another tenant's 5,000 rows: 0.2 s of work left against 41 s.",
    );
    expect(sentence({ at_us: 1, policy: "relserve", first: { ...other, work_us: 5, rows: 2 }, rival: { ...mine, label, waiting_rows: 5 } })).toBe(
      "Another tenant's 2 rows went before your 5 cells (C): 5 µs of work left against 0.2 s.",
    );
  });

  it("says what decided where it was not the work", () => {
    const { work_us: _, ...plain } = bobs;
    const first = { ...mine, label: { column: "C" } };
    const rival = { ...plain, label: { column: "D" } };
    const of = (one: Partial<Decision>) => sentence({ at_us: 1, policy: "fcfs", first, rival, ...one });
    expect(of({ first: { ...first, arrival_us: 10 } })).toMatch(/: they came first\.$/);
    expect(of({ first: { ...first, is_urgent: true } })).toMatch(/waited long enough, or were urgent\.$/);
    expect(of({})).toMatch(/^Your 5 cells \(C\) began beside Bob's 5,000 cells \(D\)/);
  });

  it("writes a tenant's name as it is, and leaves it out where all are of one", () => {
    const first = { ...mine, tenant: "default", label: { column: "C" } };
    const decision = { at_us: 1, policy: "fcfs", first, rival: { ...bobs, tenant: "default" } };
    expect(sentence(decision)).toMatch(/^default's 5 cells \(C\) went before default's 5,000 cells/);
    expect(sentence(decision, false)).toBe("5 cells (C) went before 5,000 cells (cells …9): 0.2 s of work left against 41 s.");
  });

  it("says times shortly", () => {
    expect([0, 700, 3_200, 99_999, 200_000, 9_940_000, 41_200_000].map(seconds)).toEqual(["1 µs", "700 µs", "3 ms", "0.1 s", "0.2 s", "9.9 s", "41 s"]);
  });

  it("is kept once, however often it is told, and no more than fit", () => {
    const model = new LiveModel();
    const frame = (decisions: Decision[]): Frame => ({ at_us: 1, lost_steps: 0, steps: [], ended: [], decisions });
    const decision = (at_us: number): Decision => ({ at_us, policy: "fcfs", first: { ...mine, id: `d${at_us}` } });
    model.take(frame([decision(2), decision(1)]));
    model.take(frame([decision(1), decision(3)]));
    expect(model.decisions.map((one) => one.at_us)).toEqual([1, 2, 3]);
    model.take(frame(Array.from({ length: DECISIONS_MAX + 9 }, (_, at) => decision(10 + at))));
    expect([model.decisions.length, model.decisions.at(-1)?.at_us]).toEqual([DECISIONS_MAX, DECISIONS_MAX + 18]);
  });
});

describe("batches", () => {
  const step = (number: number, more: Partial<Step> = {}): Step => ({
    step: number, kind: "decode", start_us: number * 100, took_us: 50, scheduling_us: 1, prefill: { rows: 0, tokens: 0 }, decode_rows: 3,
    reason: "nothing waits", running: { relqueries: 1, rows: 3 }, shares: [], ...more,
  });
  const prompts = (number: number, more: Partial<Step> = {}) =>
    step(number, { kind: "prefill", prefill: { rows: 4, tokens: 1_390 }, decode_rows: 0, reason: "nothing runs", front: { id: "a", priority: 1 }, ...more });
  const name = (id: string) => (id === "a" ? "B Small" : undefined);

  it("of one kind, reason and relQuery are one line, the newest first", () => {
    const answers = (number: number, decode_rows: number) => step(number, { decode_rows, first_running: { id: "b", priority: 1 } });
    const steps = [prompts(1), prompts(2), answers(3, 8), answers(4, 5), prompts(5, { front: { id: "b", priority: 2 } })];
    expect(batchRuns(steps, 9).map(({ steps: n, kind, front, prompts: rows, tokens, decode_rows, took_us, end_us }) =>
      [n, kind, front, rows, tokens, decode_rows, took_us, end_us])).toEqual([
      [1, "prefill", "b", 4, 1_390, 0, 50, 550], [2, "decode", "b", 0, 0, 8, 100, 450], [2, "prefill", "a", 8, 2_780, 0, 100, 250],
    ]);
    expect(batchRuns(steps, 2).map(({ steps: n }) => n), "no more than are asked for, each whole").toEqual([1, 2]);
    expect(batchRuns([], 2)).toEqual([]);
  });

  it("are told in sentences: what, why, and for whom where that is known", () => {
    const words = (...steps: Step[]) => batchRuns(steps, 1).map((run) => batchWords(run, name))[0];
    expect(words(prompts(1))).toBe("4 prompts of 1,390 tokens in 50 µs. Why: no row was writing an answer, so prompts were computed. First in line: B Small.");
    expect(words(step(1), step(2))).toBe("Answers of 3 rows in 100 µs, 2 steps. Why: no row was waiting, so answers went on.");
    expect(words(prompts(1, { kind: "mixed", decode_rows: 2, failed: true, front: { id: "gone", priority: 1 }, reason: "new" }))).toBe(
      "4 prompts of 1,390 tokens and answers of 2 rows in 50 µs, failed. Why: new.",
    );
    const named = { id: "a", priority: 1 };
    expect(words(step(1, { front: named, reason: "new" })), "one that waits while others answer").toMatch(/Why: new\. Next in line: B Small\.$/);
    expect(words(step(1, { first_running: named, reason: "new" }))).toMatch(/Why: new\. First of those that ran: B Small\.$/);
    expect(words(step(1, { front: named, first_running: named, reason: "new" })), "one that waits and runs").toMatch(/First of those that ran: B Small\.$/);
    // One reason of the server stands for three kinds of steps.
    const chunk = "decodes with a chunk of prompts";
    expect(words(prompts(1, { reason: chunk }))).toMatch(/the whole batch went to prompts\. First/);
    expect(words(step(1, { reason: chunk }))).toMatch(/no prompt was there to be computed beside them\.$/);
    expect(words(prompts(1, { reason: chunk, kind: "mixed", decode_rows: 1 }))).toMatch(/as many prompts as fit were computed beside them/);
  });

  it("are told in plain words where the server tells of one to programs", () => {
    expect(plainDecision("step 6: nothing waits; front relQuery 75 at 2.5 s; candidate of 1 rows, 5 tokens")).toBe("no row was waiting, so answers went on");
    expect([plainDecision("step 6: a new reason"), plainDecision("none")]).toEqual(["a new reason", "none"]);
    expect([since(5_000_000, 5_000_100), since(2_000_000, 5_000_000)]).toEqual(["now", "3.00 s ago"]);
  });
});

describe("lanes", () => {
  const bar = (more: Partial<Bar>): Bar => ({
    ...names, arrival_us: 100, started_us: 150, prefilled_us: 200, end_us: 300, period: "completed", rows: 5, done: 5, failed: 0, reasons: [], missing: 0, ...more,
  });

  it("are as they were at any time", () => {
    const period = (time: number) => asAt(bar({}), time)?.period;
    expect([99, 120, 170, 250, 300].map(period)).toEqual([undefined, "waiting", "core", "tail", "completed"]);
    const kinds = (time: number) => lanesAt([bar({})], time, false).pieces.map(({ kind, from, to }) => [kind, from, to]);
    expect(kinds(120)).toEqual([["waiting", 100, 120]]);
    expect(kinds(170)).toEqual([["waiting", 100, 150], ["core", 150, 170]]);
    expect(kinds(999)).toEqual([["waiting", 100, 150], ["core", 150, 200], ["tail", 200, 300]]);
    const running = bar({ end_us: undefined, period: "core", prefilled_us: 160 });
    expect(asAt(running, 180)?.period).toBe("core");
  });

  it("name the tenant before those who see all, and begin with the first that came", () => {
    const bars = [bar({ id: "b", tenant: "Bob", arrival_us: 60, label: { column: "C" } }), bar({ label: { column: "D" } })];
    expect(lanesAt(bars, 400, true).names).toEqual(["Bob: C", "you: D"]);
    expect(lanesAt(bars, 400, false).names).toEqual(["C", "D"]);
    expect([lanesAt(bars, 70, false).names, lanesAt([], 5, true).from, firstArrival(bars, 400)]).toEqual([["C"], 5, 60]);
  });

  it("show the last work at first, back to a pause that is longer than it, and a minute at most", () => {
    const minutes = (arrival: number, end?: number) => bar({ arrival_us: arrival * 60e6, end_us: end === undefined ? undefined : end * 60e6 });
    expect(firstWindow([minutes(1, 2), minutes(8, 9.5)], 600e6)).toEqual({ from: 507e6, to: 573e6 });
    expect(firstWindow([minutes(1, 2), minutes(8, 8.5)], 600e6)).toEqual({ from: 478.5e6, to: 511.5e6 });
    expect(firstWindow([minutes(1)], 600e6)).toEqual({ from: 537e6, to: 600e6 });
    expect(firstWindow([], 600e6)).toEqual({ from: 600e6, to: 600e6 + 1 });
    const seconds = (arrival: number, end: number) => minutes(arrival / 60, end / 60);
    // The pause of 3 s is shorter than the 4 s that came after it; that of 20 s is not.
    const bars = [seconds(10, 12), seconds(32, 34), seconds(37, 41)];
    const window = firstWindow(bars, 60e6);
    expect([window.from / 1e6, window.to / 1e6].map((at) => at.toFixed(2))).toEqual(["31.55", "41.45"]);
    expect(within(bars, window, 60e6)).toEqual(bars.slice(1));
    expect(within([seconds(90, 99)], window, 60e6), "what comes later").toEqual([]);
    expect([span(480e6), span(-125e6), span(100e6)]).toEqual(["8 min 0 s", "-2 min 5 s", "100.0 s"]);
  });

  it("use the room there is, and share it where they are many", () => {
    expect([1, 4, 8, 16, 24, 400].map((lanes) => laneHeight(lanes, 380))).toEqual([60, 60, 47, 23, 22, 22]);
    expect([laneHeight(0, 380), laneHeight(3, -50)]).toEqual([60, 22]);
  });

  it("say how much they are and how long they took, and whose where there are several tenants", () => {
    const running = bar({ end_us: undefined, period: "core", arrival_us: 1e6, label: { column: "C" }, rows: 1 });
    expect(lanesAt([bar({}), running], 3e6, false).notes).toEqual(["5 cells, 200 µs", "1 cell, 2.00 s so far"]);
    expect([hasTenants([bar({}), running], true), hasTenants([bar({}), bar({ tenant: "Bob" })], true)]).toEqual([false, true]);
    expect(hasTenants([bar({}), bar({ tenant: "Bob" })], false), "who sees the own alone").toBe(false);
  });

  it("are played from a time to the present, and stand still there", () => {
    const replay = new Replay();
    expect([replay.isLive, replay.time(7_000_000)]).toEqual([true, 7_000_000]);
    replay.speed = 4;
    replay.play(1_000_000, 50);
    replay.tick(550, 7_000_000);
    expect([replay.time(7_000_000), replay.isPlaying, replay.isLive]).toEqual([3_000_000, true, false]);
    replay.pause();
    replay.tick(9_999, 7_000_000);
    expect(replay.time(7_000_000)).toBe(3_000_000);
    replay.play(3_000_000, 0);
    replay.tick(5_000, 7_000_000);
    expect([replay.time(8_000_000), replay.isPlaying, replay.isLive]).toEqual([7_000_000, false, false]);
    replay.seek(2_000_000);
    expect(replay.time(7_000_000)).toBe(2_000_000);
    replay.follow();
    expect(replay.time(9_000_000)).toBe(9_000_000);
  });
});
