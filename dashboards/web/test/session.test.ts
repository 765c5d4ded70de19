// A session against a world of the test's own.

import { AnswerCache } from "relserve-client/answer-cache";
import { CellError } from "relserve-client/value";
import { RequestError } from "relserve-client/wire";
import { expect, test } from "vitest";

import { type Edit, type Step, rearrange } from "../src/core/arrange";
import { type Run, Toy, last } from "./toy";

test("cells fill as their events come, and usage is counted at the end", async () => {
  const toy = new Toy();
  for (const [row, text] of ["a", "b"].entries()) toy.set(row, 0, text);
  toy.set(0, 1, "=AI.RATE(A1:A2)");
  expect([toy.show(0, 1), toy.show(1, 1)]).toEqual(["…", "…"]);
  await toy.pass(100);
  const run = last(toy);
  expect(run.calls.map(({ args }) => args[0])).toEqual(["a", "b"]);
  run.onCell(1, { value: 4 });
  await toy.pass(50);
  expect([toy.show(0, 1), toy.show(1, 1)]).toEqual(["…", "4"]);
  run.onCell(0, { value: 2 });
  run.resolve({ prompt_tokens: 30, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 16 }, rows_from_cache: 1 });
  await toy.pass(50);
  expect(toy.show(0, 1)).toBe("2");
  expect(toy.session.usage).toMatchObject({
    asked: 2, answered: 2, promptTokens: 30, cachedTokens: 16, outputTokens: 2, fromCache: 1, requests: 1,
  });
  expect(toy.session.pending).toEqual({ calls: 0, requests: 0 });
});

test("a column of more text than the memory's bound is asked once, and the next one may take its place", async () => {
  const memory = new AnswerCache({ entries: 3, characters: 1_000_000 });
  const toy = new Toy(memory);
  for (let row = 0; row < 6; row += 1) toy.set(row, 0, `text ${row}`);
  const fill = async () => {
    const run = last(toy);
    for (const index of run.calls.keys()) {
      run.onCell(index, { value: index + 1 });
      await toy.pass(50);
    }
    run.resolve({});
    await toy.pass(200);
  };
  toy.set(0, 1, "=AI.RATE(A1:A6)");
  await toy.pass(100);
  await fill();
  expect([toy.runs.length, toy.session.pending.calls, toy.show(0, 1), toy.show(5, 1), memory.size]).toEqual([1, 0, "1", "6", 6]);
  toy.set(0, 2, '=AI.CLASSIFY(A1:A6, "a, b")');
  await toy.pass(100);
  await fill();
  expect([toy.runs.length, toy.session.pending.calls, memory.size]).toEqual([2, 0, 6]);
});

test("deleting the last cell that waits drops the request; what comes back by undo is asked again", async () => {
  const toy = new Toy();
  toy.set(0, 0, "a");
  toy.set(0, 1, "=AI.RATE(A1)");
  await toy.pass(100);
  toy.set(0, 1, "");
  await toy.pass(1);
  expect(last(toy).signal.aborted).toBe(true);
  expect(toy.session.usage.cancelled).toBe(1);
  toy.set(0, 1, "=AI.RATE(A1)");
  await toy.pass(100);
  expect(toy.runs).toHaveLength(2);
});

test("a seen cell is filled again without asking", async () => {
  const toy = new Toy();
  toy.set(0, 0, "a");
  toy.set(0, 1, "=AI.RATE(A1)");
  await toy.pass(100);
  last(toy).onCell(0, { value: 5 });
  last(toy).resolve({});
  await toy.pass(50);
  toy.set(0, 0, "b");
  toy.set(0, 0, "a");
  expect(toy.show(0, 1)).toBe("5");
  await toy.pass(500);
  expect(toy.runs).toHaveLength(1);
});

test("a broken connection asks for the missing cells only, and gives up with words", async () => {
  const toy = new Toy();
  for (const [row, text] of ["a", "b"].entries()) toy.set(row, 0, text);
  toy.set(0, 1, "=AI.RATE(A1:A2)");
  await toy.pass(100);
  last(toy).onCell(0, { value: 5 });
  for (let i = 0; i < 7; i += 1) {
    last(toy).reject(new RequestError("the connection broke", 0, undefined));
    await toy.pass(40_000);
  }
  expect(toy.runs.map(({ calls }) => calls.length)).toEqual([2, 1, 1, 1, 1, 1, 1]);
  expect([toy.show(0, 1), toy.show(1, 1)]).toEqual(["5", "#N/A"]);
  expect(toy.session.sheet.value(1, 1)).toMatchObject({ note: "the connection broke" });
  toy.session.retry();
  await toy.pass(100);
  expect(toy.runs).toHaveLength(8);
});

test("a request that is too large for the server is asked in halves", async () => {
  const toy = new Toy();
  for (let row = 0; row < 5; row += 1) toy.set(row, 0, `text ${row}`);
  toy.set(0, 1, "=AI.RATE(A1:A5)");
  await toy.pass(100);
  last(toy).reject(new RequestError("`calls` exceeds the limit of 3 calls", 400, undefined));
  await toy.pass(100);
  expect(toy.runs.map(({ calls }) => calls.length)).toEqual([5, 3, 2]);
  for (const run of toy.runs.slice(1)) run.calls.forEach((_, index) => run.onCell(index, { value: index }));
  await toy.pass(100);
  expect([0, 1, 2, 3, 4].map((row) => toy.show(row, 1))).toEqual(["0", "1", "2", "0", "1"]);
});

test("a key that is refused is told once and asks nothing again by itself", async () => {
  const toy = new Toy();
  toy.set(0, 0, '=AI.ASK("x")');
  await toy.pass(100);
  last(toy).reject(new RequestError("no valid key", 401, undefined));
  await toy.pass(60_000);
  expect([toy.refusals, toy.runs.length, toy.show(0, 0)]).toEqual([1, 1, "#N/A"]);
  expect(toy.session.sheet.value(0, 0), "in the page's words, not the server's").toMatchObject({ note: "the key no longer works" });
});

test("a closed session calls everything off and asks no more", async () => {
  const toy = new Toy();
  toy.set(0, 0, '=AI.ASK("x")');
  await toy.pass(100);
  toy.set(1, 0, '=AI.ASK("y")');
  toy.session.close();
  await toy.pass(10_000);
  expect(toy.runs).toHaveLength(1);
  expect(last(toy).signal.aborted).toBe(true);
});

/** Does to a session what the grid would. */
function arrange(toy: Toy, edit: Edit): Step[] {
  const steps = rearrange(toy.session.sheet.typed(), edit);
  toy.session.set(steps.map(({ row, column, after }) => ({ row, column, raw: after })));
  return steps;
}

test("cells that wait move with their rows and keep waiting: nothing is dropped or asked twice", async () => {
  const toy = new Toy();
  toy.rate(["a", "b", "c"]);
  toy.set(0, 2, "=AI.RATE(A1:A3, \"size\")");
  await toy.pass(100);
  expect(last(toy).calls).toHaveLength(6);
  const steps = arrange(toy, { kind: "insert", axis: "row", at: 1, count: 1 });
  await toy.pass(200);
  arrange(toy, { kind: "insert", axis: "column", at: 0, count: 1 });
  await toy.pass(200);
  expect([toy.runs.length, last(toy).signal.aborted]).toEqual([1, false]);
  expect([0, 1, 2, 3].map((row) => toy.show(row, 2))).toEqual(["…", "", "…", "…"]);
  for (let i = 0; i < 6; i += 1) last(toy).onCell(i, { value: i });
  // A row more between an answer's coming and its showing.
  arrange(toy, { kind: "insert", axis: "row", at: 0, count: 1 });
  last(toy).resolve({});
  await toy.pass(50);
  const column = (x: number) => [1, 2, 3, 4].map((row) => toy.show(row, x));
  const byCall = new Map(last(toy).calls.map(({ args }, i) => [JSON.stringify(args), String(i)]));
  expect(column(2)).toEqual(["a", "", "b", "c"].map((text) => byCall.get(JSON.stringify([text])) ?? ""));
  expect(column(3)).toEqual(["a", "", "b", "c"].map((text) => byCall.get(JSON.stringify([text, "size"])) ?? ""));
  arrange(toy, { kind: "delete", axis: "row", at: 0, count: 1 });
  arrange(toy, { kind: "delete", axis: "column", at: 0, count: 1 });
  toy.session.set(steps.map(({ row, column: x, before }) => ({ row, column: x, raw: before })));
  await toy.pass(500);
  expect([0, 1, 2].map((row) => toy.show(row, 1))).toEqual(["a", "b", "c"].map((text) => byCall.get(JSON.stringify([text]))));
  expect(toy.runs, "what was seen is not asked again").toHaveLength(1);
  expect(toy.session.usage.cancelled).toBe(0);
});

test("deleting the rows that wait drops their request, and deleting some of them does not", async () => {
  const toy = new Toy();
  toy.rate(["a", "b"]);
  await toy.pass(100);
  arrange(toy, { kind: "delete", axis: "row", at: 0, count: 1 });
  await toy.pass(1);
  expect(last(toy).signal.aborted).toBe(false);
  arrange(toy, { kind: "delete", axis: "row", at: 0, count: 1 });
  await toy.pass(1);
  expect(last(toy).signal.aborted).toBe(true);
  expect([toy.runs.length, toy.session.pending.calls]).toEqual([1, 0]);
});

test("a stop keeps what is answered, calls the rest off, and asks for it only when told", async () => {
  const toy = new Toy();
  for (const [row, text] of ["a", "b", "c"].entries()) toy.set(row, 0, text);
  toy.set(0, 1, "=AI.RATE(A1:A3)");
  await toy.pass(100);
  last(toy).onCell(1, { value: 4 });
  await toy.pass(50);
  toy.session.stop();
  expect(last(toy).signal.aborted).toBe(true);
  await toy.pass(60_000);
  const column = () => [0, 1, 2].map((row) => toy.show(row, 1));
  expect(column()).toEqual(["#STOPPED!", "4", "#STOPPED!"]);
  expect([toy.runs.length, toy.session.pending.calls, toy.session.usage.cancelled, toy.session.usage.failed]).toEqual([1, 0, 2, 0]);
  expect(toy.session.hasFailed).toBe(true);
  toy.set(2, 0, "d");
  await toy.pass(100);
  expect(last(toy).calls.map(({ args }) => args[0]), "an edit asks what is new").toEqual(["d"]);
  toy.session.retry();
  await toy.pass(100);
  expect(last(toy).calls.map(({ args }) => args[0])).toEqual(["a"]);
  expect(toy.session.hasFailed, "nothing is left to retry").toBe(false);
});

test("what was called off stays so in the next page, which asks the rest, until it is asked for again", async () => {
  const before = new Toy();
  before.rate(["a", "b"]);
  await before.pass(100);
  last(before).onCell(1, { value: 4 });
  before.session.stop();
  const toy = new Toy(undefined, new Set(before.session.calledOff));
  toy.rate(["a", "b"]);
  await toy.pass(5_000);
  expect([toy.show(0, 1), toy.runs.map(({ calls }) => calls.map(({ args }) => args[0]))]).toEqual(["#STOPPED!", [["b"]]]);
  expect(toy.session.again({ row: 0, rowEnd: 0, column: 1, columnEnd: 1 })).toBe(1);
  await toy.pass(100);
  expect([last(toy).calls.map(({ args }) => args[0]), toy.session.calledOff.size]).toEqual([["a"], 0]);
  const third = new Toy(undefined, new Set(before.session.calledOff));
  third.rate(["a", "b"]);
  third.session.retry();
  await third.pass(100);
  expect([last(third).calls.length, third.session.calledOff.size]).toEqual([2, 0]);
});

test("many cells are asked about first: a no stops them, and a yes lets them go", async () => {
  const toy = new Toy();
  const rows = Array.from({ length: 1_200 }, (_, row) => ({ row, column: 0, raw: `text ${row}` }));
  toy.session.set([...rows, { row: 0, column: 1, raw: "=AI.RATE(A1:A1200)" }]);
  await toy.pass(5_000);
  expect([toy.questions, toy.runs.length, toy.show(0, 1)]).toEqual([[1_200], 0, "…"]);
  toy.answer(false);
  await toy.pass(100);
  expect([toy.runs.length, toy.show(0, 1), toy.show(1_199, 1), toy.session.pending.calls]).toEqual([0, "#STOPPED!", "#STOPPED!", 0]);
  toy.session.retry();
  await toy.pass(200);
  toy.answer(true);
  await toy.pass(100);
  expect([toy.questions, toy.runs.map(({ calls }) => calls.length)]).toEqual([[1_200, 1_200], [1_200]]);
});

test("a server that falls silent is away within two seconds; nothing is asked until it is back, and then all goes on", async () => {
  const toy = new Toy();
  for (const [row, text] of ["a", "b"].entries()) toy.set(row, 0, text);
  toy.set(0, 1, "=AI.RATE(A1:A2)");
  await toy.pass(100);
  await toy.pass(3_000);
  expect([toy.session.isReconnecting, toy.probes > 0], "silent, but there").toEqual([false, true]);
  toy.isThere = false;
  await toy.pass(2_000);
  expect([toy.session.isReconnecting, toy.show(0, 1)]).toEqual([true, "…"]);
  toy.set(0, 2, '=AI.ASK("more")');
  await toy.pass(600_000);
  expect(toy.runs).toHaveLength(1);
  toy.isThere = true;
  await toy.pass(1_000);
  expect(toy.session.isReconnecting).toBe(false);
  expect(toy.runs.map(({ calls }) => calls.length), "what came meanwhile goes out").toEqual([2, 1]);
  toy.runs[0]?.onCell(0, { value: 1 });
  toy.runs[0]?.onHeard();
  await toy.pass(60_000);
  expect([toy.runs.length, toy.show(0, 1)], "a stream that speaks again goes on").toEqual([2, "1"]);
});

test("a lost connection waits for the server without a limit, and does not count as a try for each second of it", async () => {
  const toy = new Toy();
  toy.set(0, 0, '=AI.ASK("x")');
  await toy.pass(100);
  toy.isThere = false;
  last(toy).reject(new RequestError("the connection broke", 0, undefined));
  await toy.pass(50);
  expect(toy.session.isReconnecting).toBe(true);
  await toy.pass(3_600_000);
  expect([toy.runs.length, toy.show(0, 0)]).toEqual([1, "…"]);
  toy.isThere = true;
  await toy.pass(1_000);
  expect(toy.runs).toHaveLength(2);
  last(toy).onCell(0, { value: "y" });
  last(toy).resolve({});
  await toy.pass(50);
  expect(toy.show(0, 0)).toBe("y");
});

test("a stream that says nothing after the server was away is broken, and its cells are asked again", async () => {
  const toy = new Toy();
  toy.set(0, 0, '=AI.ASK("x")');
  await toy.pass(100);
  toy.isThere = false;
  await toy.pass(5_000);
  toy.isThere = true;
  await toy.pass(15_000);
  expect([toy.session.isReconnecting, toy.runs.length]).toEqual([false, 1]);
  await toy.pass(10_000);
  expect([toy.runs.length, toy.runs[0]?.signal.aborted, toy.session.usage.cancelled]).toEqual([2, true, 0]);
});

test("a pause calls the request off and keeps its answers; resumed, the rest is asked and nothing else", async () => {
  const toy = new Toy();
  for (const [row, text] of ["a", "b", "c"].entries()) toy.set(row, 0, text);
  toy.set(0, 1, "=AI.RATE(A1:A3)");
  await toy.pass(100);
  last(toy).onCell(1, { value: 4 });
  await toy.pass(50);
  toy.session.pause();
  expect([last(toy).signal.aborted, toy.session.isPaused]).toEqual([true, true]);
  await toy.pass(60_000);
  expect(toy.runs).toHaveLength(1);
  expect([toy.show(0, 1), toy.show(1, 1)]).toEqual(["…", "4"]);
  expect(toy.session.pending.calls).toBe(2);
  toy.session.resume();
  await toy.pass(100);
  expect(last(toy).calls.map(({ args }) => args[0])).toEqual(["a", "c"]);
  last(toy).onCell(0, { value: 1 });
  last(toy).onCell(1, { value: 3 });
  last(toy).resolve({});
  await toy.pass(50);
  expect([toy.show(0, 1), toy.show(1, 1), toy.show(2, 1)]).toEqual(["1", "4", "3"]);
});

test("cells that are asked again ask the model past the cache, and no other cell is asked", async () => {
  const toy = new Toy();
  for (const [row, text] of ["a", "b", "c"].entries()) toy.set(row, 0, text);
  toy.set(0, 1, "=AI.RATE(A1:A3)");
  await toy.pass(100);
  expect(last(toy).isFresh).toBe(false);
  for (const index of [0, 1, 2]) last(toy).onCell(index, { value: index });
  last(toy).resolve({});
  await toy.pass(50);
  toy.set(2, 1, "mine");
  expect(toy.session.again({ row: 1, rowEnd: 2, column: 1, columnEnd: 1 })).toBe(1);
  expect([toy.show(0, 1), toy.show(1, 1), toy.show(2, 1)]).toEqual(["0", "…", "mine"]);
  await toy.pass(100);
  expect(toy.runs).toHaveLength(2);
  expect([last(toy).isFresh, last(toy).calls.map(({ args }) => args[0])]).toEqual([true, ["b"]]);
  last(toy).onCell(0, { value: 5 });
  last(toy).resolve({});
  await toy.pass(50);
  expect(toy.show(1, 1)).toBe("5");
  expect(toy.session.again({ row: 0, rowEnd: 9, column: 0, columnEnd: 0 })).toBe(0);
  toy.set(3, 0, "d");
  toy.set(3, 1, "=AI.RATE(A4)");
  await toy.pass(100);
  expect(last(toy).isFresh).toBe(false);
  last(toy).onCell(0, { value: 1 });
  last(toy).resolve({});
  await toy.pass(50);
  toy.session.again({ row: 3, rowEnd: 3, column: 1, columnEnd: 1 });
  await toy.pass(100);
  last(toy).onCell(0, { error: new CellError("#N/A", "no") });
  last(toy).resolve({});
  await toy.pass(50);
  toy.session.retry();
  await toy.pass(100);
  expect([toy.runs.length, last(toy).isFresh], "once past the cache, not for ever").toEqual([5, false]);
});

test("an edit below a column of more text than the memory's bound asks for that row, and for no other again", async () => {
  const toy = new Toy(new AnswerCache({ entries: 3, characters: 1_000_000 }));
  for (let row = 0; row < 6; row += 1) toy.set(row, 0, `text ${row}`);
  toy.set(0, 1, "=AI.RATE(A1:A6)");
  await toy.pass(100);
  const fill = async () => {
    for (const index of last(toy).calls.keys()) last(toy).onCell(index, { value: index });
    last(toy).resolve({});
    await toy.pass(200);
  };
  await fill();
  toy.set(5, 0, "edited");
  await toy.pass(100);
  expect(last(toy).calls.map(({ args }) => args[0])).toEqual(["edited"]);
  await fill();
  expect([toy.runs.length, toy.session.pending.calls]).toEqual([2, 0]);
});

test("what is asked again changes in every cell that asks it, takes nothing else past the cache, and leaves hidden rows alone", async () => {
  const toy = new Toy();
  for (const [row, text] of ["a", "b", "c"].entries()) toy.set(row, 0, text);
  for (const [row, raw] of ["=AI.RATE(A1)", "=AI.RATE(A2)", "=AI.RATE(A3)"].entries()) toy.set(row, 1, raw);
  toy.set(0, 2, "=IFERROR(AI.RATE(A1), 0)");
  const texts = () => last(toy).calls.map(({ args }) => args[0]);
  const fill = async (value: number) => {
    for (const index of last(toy).calls.keys()) last(toy).onCell(index, { value });
    last(toy).resolve({});
    await toy.pass(200);
  };
  await toy.pass(100);
  await fill(1);
  toy.session.pause();
  toy.set(3, 0, "d");
  toy.set(3, 1, "=AI.RATE(A4)");
  expect(toy.session.again({ row: 0, rowEnd: 2, column: 1, columnEnd: 1 }, (row) => row > 0)).toBe(1);
  toy.session.resume();
  await toy.pass(200);
  expect(toy.runs.slice(1).map(({ isFresh, calls }) => [isFresh, calls.map(({ args }) => args[0])])).toEqual([[false, ["d"]], [true, ["a"]]]);
  expect(texts()).toEqual(["a"]);
  await fill(5);
  expect([toy.show(0, 1), toy.show(0, 2), toy.show(1, 1)]).toEqual(["5", "5", "1"]);
});

test("what nobody wants any more when a run is paused is not asked when it goes on", async () => {
  const toy = new Toy();
  for (const [row, text] of ["a", "b", "c"].entries()) {
    toy.set(row, 0, text);
    toy.set(row, 1, `=AI.RATE(A${row + 1})`);
  }
  await toy.pass(100);
  toy.set(0, 1, "");
  toy.session.pause();
  expect(toy.session.pending.calls).toBe(2);
  toy.session.resume();
  await toy.pass(100);
  expect(last(toy).calls.map(({ args }) => args[0])).toEqual(["b", "c"]);
});

test("whatever is typed, paused, stopped, broken or asked again, every cell ends with an answer, and none is asked for ever", async () => {
  for (let seed = 1; seed <= 60; seed += 1) {
    let state = seed * 7_919 + 13;
    const random = (most: number) => (state = (state * 48_271) % 2_147_483_647) % most;
    const toy = new Toy(new AnswerCache({ entries: 6, characters: 1_000_000 }));
    const over = new Set<Run>();
    const open = () => toy.runs.find((run) => !run.signal.aborted && !over.has(run));
    const end = (run: Run, how: () => void) => {
      over.add(run);
      how();
    };
    const fill = (run: Run) => end(run, () => {
      for (const index of run.calls.keys()) run.onCell(index, { value: 4 });
      run.resolve({});
    });
    const steps: ((run: Run | undefined) => void)[] = [
      () => toy.set(random(6), 0, `text ${random(8)}`), () => toy.set(random(6), 1, `=AI.RATE(A${1 + random(6)})`),
      () => toy.set(0, 2, "=AI.RATE(A1:A6)"), () => toy.set(random(6), 1 + random(2), ""), () => toy.set(random(6), 2, "mine"),
      () => toy.session.pause(), () => toy.session.resume(), () => toy.session.stop(), () => toy.session.retry(),
      () => toy.session.again({ row: random(6), rowEnd: 5, column: 1, columnEnd: 2 }),
      () => {
        toy.isThere = !toy.isThere;
      },
      (run) => run?.onCell(random(run.calls.length), { value: 3 }), (run) => run && fill(run),
      (run) => run && end(run, () => run.reject(new RequestError("x", [0, 429, 500, 503][random(4)] ?? 0, undefined))),
    ];
    for (let i = 0; i < 60; i += 1) {
      steps[random(steps.length)]?.(open());
      await toy.pass(random(600));
    }
    toy.isThere = true;
    toy.session.resume();
    let requests = 0;
    for (; requests < 20; requests += 1) {
      await toy.pass(70_000);
      const run = open();
      if (!run) break;
      fill(run);
    }
    expect([toy.session.pending, requests < 20], `seed ${seed}`).toEqual([{ calls: 0, requests: 0 }, true]);
    for (let row = 0; row < 6; row += 1) expect([toy.show(row, 1), toy.show(row, 2)], `seed ${seed}`).not.toContain("…");
  }
});

test("a formula names its model, the workbook that of all others, and another choice asks anew", async () => {
  const toy = new Toy();
  toy.set(0, 0, "a");
  toy.set(1, 0, "b");
  toy.set(0, 1, '=AI.MODEL("n", AI.RATE(A1:A2))');
  toy.set(0, 2, "=AI.RATE(A1)");
  toy.set(0, 3, '=AI.MODEL("n", AI.MODEL("m", AI.RATE(A1)) + AI.RATE(A2))');
  await toy.pass(100);
  const asked = () => toy.runs.map(({ calls }) => calls.map(({ args, model }) => `${args[0]} ${model}`));
  expect(asked()).toEqual([["a n", "b n"], ["a undefined"], ["a m"]]);
  for (const [i, run] of toy.runs.entries()) {
    for (const index of run.calls.keys()) run.onCell(index, { value: 10 * i + index + 1 });
    run.resolve({});
  }
  await toy.pass(100);
  // A range of answers fills the cells below, through the name of a model too.
  expect([0, 1, 2, 3].map((column) => toy.show(0, column))).toEqual(["a", "1", "11", "23"]);
  expect(toy.show(1, 1)).toBe("2");

  toy.chosen = "n";
  toy.session.modelChanged();
  await toy.pass(100);
  expect([toy.runs.length, toy.show(0, 2)], "what it said is known").toEqual([3, "1"]);
  toy.chosen = "x";
  toy.session.modelChanged();
  expect(toy.show(0, 2)).toBe("…");
  await toy.pass(100);
  expect(asked().at(-1)).toEqual(["a x"]);
  last(toy).reject(new RequestError("the model `x` does not exist; served: `m`, `n`", 404, undefined));
  await toy.pass(100);
  expect(toy.session.sheet.value(0, 2)).toMatchObject({ code: "#N/A", note: expect.stringContaining("served: `m`, `n`") });
  toy.chosen = undefined;
  toy.session.modelChanged();
  await toy.pass(100);
  expect([toy.runs.length, toy.show(0, 2)]).toEqual([4, "11"]);
});

test("a model's name must be a text, and there is one formula to it", () => {
  const toy = new Toy();
  for (const formula of ["=AI.MODEL()", '=AI.MODEL("n")', '=AI.MODEL("", AI.RATE("a"))', '=AI.MODEL(3, AI.RATE("a"))', '=AI.MODEL("n", 1, 2)']) {
    toy.set(0, 0, formula);
    expect(toy.session.sheet.value(0, 0), formula).toMatchObject({ code: "#VALUE!", note: expect.stringContaining("AI.MODEL") });
  }
  expect(toy.session.pending.calls).toBe(0);
});
