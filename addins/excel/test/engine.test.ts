// Formulas coming, going and filling, in a world where time is a number and requests are in the test's hands.

import type { Answer, Call } from "relserve-client/calls";
import type { ServerUsage } from "relserve-client/usage";
import { CellError, PENDING, type Value } from "relserve-client/value";
import { RequestError } from "relserve-client/wire";
import { beforeEach, expect, test } from "vitest";

import { Engine, STOPPED } from "../../shared/engine";

interface Run {
  calls: Call[];
  signal: AbortSignal;
  onCell(index: number, answer: Answer): void;
  resolve(usage: ServerUsage): void;
  reject(error: Error): void;
}

class Toy {
  now = 0;
  isThere = true;
  runs: Run[] = [];
  private timers: { at: number; then: () => void }[] = [];
  readonly engine = new Engine({
    now: () => this.now,
    later: (milliseconds, then) => {
      const timer = { at: this.now + milliseconds, then };
      this.timers.push(timer);
      return () => {
        this.timers = this.timers.filter((other) => other !== timer);
      };
    },
    ask: (calls, signal, onCell) =>
      new Promise<ServerUsage>((resolve, reject) => {
        signal.addEventListener("abort", () => reject(new Error("aborted")));
        this.runs.push({ calls, signal, onCell, resolve, reject });
      }),
    probe: () => Promise.resolve(this.isThere),
    progress: () => undefined,
  });

  /** Lets time pass, timer by timer. */
  async pass(milliseconds: number): Promise<void> {
    const end = this.now + milliseconds;
    for (;;) {
      for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
      const [next] = this.timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at);
      if (!next) break;
      this.timers = this.timers.filter((timer) => timer !== next);
      this.now = Math.max(this.now, next.at);
      next.then();
    }
    this.now = end;
  }

  /** A formula; what it was shown, in order, and what its going calls. */
  add(text: Value, labels = "a,b"): { seen: Value[]; cancel: () => void } {
    const seen: Value[] = [];
    return { seen, cancel: this.engine.add("AI.CLASSIFY", [text, labels], (value) => seen.push(value)) };
  }

  get texts(): unknown[][] {
    return this.runs.map(({ calls }) => calls.map(({ args }) => args[0]));
  }

  run(i: number): Run {
    const run = this.runs[i];
    if (!run) throw new Error(`there is no request ${i}`);
    return run;
  }
}

let toy: Toy;
beforeEach(() => {
  toy = new Toy();
});

test("formulas of the same moment are one request, and equal cells are asked once", async () => {
  const [one, two] = [toy.add([["x"], [null], ["y"]]), toy.add("x")];
  await toy.pass(99);
  expect(toy.runs).toHaveLength(0);
  await toy.pass(1);
  expect(toy.texts).toEqual([["x", "y"]]);
  expect([one.seen, two.seen]).toEqual([[], []]);
  toy.run(0).onCell(0, { value: "a" });
  await toy.pass(1);
  expect(one.seen).toEqual([[["a"], [null], [PENDING]]]);
  expect(two.seen).toEqual(["a"]);
  toy.run(0).onCell(1, { value: "b" });
  toy.run(0).resolve({ prompt_tokens: 9, rows_from_cache: 1 });
  await toy.pass(250);
  expect(one.seen.at(-1)).toEqual([["a"], [null], ["b"]]);
  expect(toy.engine.usage).toMatchObject({ asked: 2, answered: 2, promptTokens: 9, fromCache: 1, requests: 1 });
  expect(toy.engine.pending).toBe(0);
});

test("a seen answer is shown before Excel has time for its busy mark", async () => {
  toy.add("x");
  await toy.pass(100);
  toy.run(0).onCell(0, { value: "a" });
  await toy.pass(1);
  expect(toy.add("x").seen).toEqual(["a"]);
  await toy.pass(1_000);
  expect(toy.runs).toHaveLength(1);
});

test("the old formula's end and the new one's start come in either order, and the request goes on", async () => {
  for (const isCancelFirst of [true, false]) {
    toy = new Toy();
    const old = toy.add([["x"], ["y"]]);
    await toy.pass(150);
    const renew = () => toy.add([["x"], ["y"], ["z"]]);
    if (isCancelFirst) old.cancel();
    const fresh = renew();
    if (!isCancelFirst) old.cancel();
    await toy.pass(200);
    expect(toy.run(0).signal.aborted).toBe(false);
    expect(toy.texts).toEqual([["x", "y"], ["z"]]);
    for (const [i, value] of ["a", "b"].entries()) toy.run(0).onCell(i, { value });
    toy.run(1).onCell(0, { value: "b" });
    await toy.pass(300);
    expect(fresh.seen.at(-1)).toEqual([["a"], ["b"], ["b"]]);
    expect(old.seen).toEqual([]);
  }
});

test("a cancel within the window, then the same formula, asks once", async () => {
  const old = toy.add("x");
  await toy.pass(50);
  old.cancel();
  const fresh = toy.add("x");
  await toy.pass(300);
  expect(toy.texts).toEqual([["x"]]);
  toy.run(0).onCell(0, { value: "a" });
  await toy.pass(1);
  expect([old.seen, fresh.seen]).toEqual([[], ["a"]]);
});

test("when the last formula that wants a request is gone, the request is dropped", async () => {
  const [one, two] = [toy.add("x"), toy.add("x")];
  await toy.pass(100);
  one.cancel();
  await toy.pass(100);
  expect(toy.run(0).signal.aborted).toBe(false);
  two.cancel();
  await toy.pass(100);
  expect(toy.run(0).signal.aborted).toBe(true);
  expect(toy.engine.usage.cancelled).toBe(1);
  expect(toy.engine.pending).toBe(0);
});

test("a broken connection is asked again; a refusal is an error in every cell, until asked again by hand", async () => {
  const formula = toy.add([["x"], ["y"]]);
  await toy.pass(100);
  toy.run(0).onCell(0, { value: "a" });
  toy.run(0).reject(new RequestError("the connection broke", 0, undefined));
  await toy.pass(1_000);
  expect(toy.texts[1]).toEqual(["y"]);
  toy.run(1).reject(new RequestError("unknown or revoked API key", 401, undefined));
  await toy.pass(300);
  expect(formula.seen.at(-1)).toEqual([["a"], [new CellError("#N/A", "unknown or revoked API key")]]);
  toy.engine.retry();
  await toy.pass(100);
  expect(toy.texts[2]).toEqual(["y"]);
  toy.run(2).onCell(0, { value: "b" });
  await toy.pass(300);
  expect(formula.seen.at(-1)).toEqual([["a"], ["b"]]);
});

test("429 waits as long as the server asks", async () => {
  toy.add("x");
  await toy.pass(100);
  toy.run(0).reject(new RequestError("busy", 429, 7_000));
  await toy.pass(6_900);
  expect(toy.runs).toHaveLength(1);
  await toy.pass(200);
  expect(toy.runs).toHaveLength(2);
});

test("a column that fills is shown a few times, not for every row", async () => {
  const rows = Array.from({ length: 1_000 }, (_, i) => [`text ${i}`]);
  const formula = toy.add(rows);
  await toy.pass(100);
  for (let i = 0; i < 1_000; i += 1) {
    toy.run(0).onCell(i, { value: "a" });
    if (i % 10 === 0) await toy.pass(10);
  }
  await toy.pass(300);
  expect(formula.seen.length).toBeLessThan(8);
  expect(formula.seen.at(-1)).toEqual(rows.map(() => ["a"]));
});

test("Stop drops what has no answer, keeps the rest, and it can be asked again", async () => {
  const formula = toy.add([["x"], ["y"], ["z"]]);
  await toy.pass(100);
  toy.run(0).onCell(0, { value: "a", details: { usage: { prompt_tokens: 9, completion_tokens: 2, computed_tokens: 9, prompt_tokens_details: { cached_tokens: 0 } } } });
  expect(toy.engine.tokens).toEqual({ prompt: 9, output: 2 });
  toy.engine.stop();
  expect(toy.run(0).signal.aborted).toBe(true);
  expect(toy.engine.state).toMatchObject({ pending: 0, stopped: 2 });
  await toy.pass(300);
  expect(formula.seen.at(-1)).toEqual([["a"], [STOPPED], [STOPPED]]);
  expect(toy.engine.usage).toMatchObject({ cancelled: 2, failed: 0, promptTokens: 9 });
  expect(toy.engine.tokens).toEqual({ prompt: 9, output: 2 });
  expect(toy.engine.hasFailures).toBe(true);
  toy.engine.retry();
  await toy.pass(100);
  expect(toy.texts[1]).toEqual(["y", "z"]);
});

test("a server that is away is told within two seconds, waited for, and all goes on when it is back", async () => {
  const formula = toy.add([["x"], ["y"]]);
  await toy.pass(100);
  toy.run(0).onCell(0, { value: "a" });
  toy.isThere = false;
  await toy.pass(1_900);
  expect(toy.engine.state.isReconnecting).toBe(true);
  toy.run(0).reject(new RequestError("the connection broke", 0, undefined));
  await toy.pass(600_000);
  expect([toy.runs.length, toy.engine.pending]).toEqual([1, 1]);
  toy.isThere = true;
  await toy.pass(1_100);
  expect(toy.engine.state.isReconnecting).toBe(false);
  expect(toy.texts[1]).toEqual(["y"]);
  toy.run(1).onCell(0, { value: "b" });
  await toy.pass(300);
  expect(formula.seen.at(-1)).toEqual([["a"], ["b"]]);
});

test("why a request failed as a whole is told until one succeeds; what is known would not be asked", async () => {
  toy.add("x");
  await toy.pass(100);
  toy.run(0).reject(new RequestError("spent", 429, undefined, "budget_spent"));
  await toy.pass(10);
  expect(toy.engine.problem?.isSpent).toBe(true);
  expect(toy.engine.unknown("AI.CLASSIFY", [[["x"], ["x"], ["y"]], "a,b"])).toHaveLength(2);
  toy.engine.retry();
  await toy.pass(100);
  toy.run(1).onCell(0, { value: "a" });
  toy.run(1).resolve({});
  await toy.pass(10);
  expect(toy.engine.problem).toBeUndefined();
  expect(toy.engine.unknown("AI.CLASSIFY", [[["x"], ["x"], ["y"]], "a,b"])).toHaveLength(1);
});

test("a call that makes no sense says so without asking", () => {
  const seen: Value[] = [];
  toy.engine.add("AI.CLASSIFY", ["x", undefined], (value) => seen.push(value));
  expect(seen).toEqual([new CellError("#VALUE!", "AI.CLASSIFY: argument `labels` is missing")]);
});
