// What is asked when, without a clock.

import { type Action, Batcher, LIMITS } from "relserve-client/batcher";
import { type Call, keyOf, requestOf } from "relserve-client/calls";
import { expect, test } from "vitest";

const call = (text: string): Call => ({ function: "rate", args: [text] });
const calls = (...texts: string[]) => new Map(texts.map((text) => [keyOf(call(text)), call(text)]));
const sent = (actions: Action[]) =>
  actions.map((action) => (action.kind === "send" ? action.calls.map(({ args }) => args[0]) : `abort ${action.request}`));

test("misses of 100 ms go out together, once each", () => {
  const batcher = new Batcher();
  batcher.want(1, calls("a"), 0);
  batcher.want(2, calls("b"), 60);
  batcher.want(3, calls("a"), 90);
  expect(batcher.poll(99)).toEqual([]);
  expect(batcher.wake()).toBe(100);
  expect(sent(batcher.poll(100))).toEqual([["a", "b"]]);
  expect(batcher.poll(500)).toEqual([]);
  expect(batcher.answered(1, 0)?.cells).toEqual([1, 3]);
  expect(batcher.answered(1, 0)).toBeUndefined();
  expect(batcher.pending).toBe(1);
});

test("what nobody wants any more is not sent", () => {
  const batcher = new Batcher();
  batcher.want(1, calls("a"), 0);
  batcher.want(2, calls("b"), 0);
  batcher.want(1, calls(), 50);
  expect(sent(batcher.poll(100))).toEqual([["b"]]);
});

test("a request is dropped when no cell wants any of it, and not before", () => {
  const batcher = new Batcher();
  batcher.want(1, calls("a"), 0);
  batcher.want(2, calls("b"), 0);
  batcher.poll(100);
  batcher.want(1, calls(), 110);
  expect(batcher.poll(110)).toEqual([]);
  batcher.answered(1, 1);
  batcher.want(2, calls(), 120);
  // `a` is open still and wanted by nobody, but only a cell that leaves is a reason to look.
  batcher.want(3, calls("a"), 121);
  batcher.want(3, calls(), 122);
  expect(sent(batcher.poll(122))).toEqual(["abort 1"]);
  expect(batcher.inFlight).toBe(0);
  expect(batcher.pending).toBe(0);
});

test("an edit while pending asks the new call and cancels the old one", () => {
  const batcher = new Batcher();
  batcher.want(1, calls("a"), 0);
  batcher.poll(100);
  batcher.want(1, calls("b"), 150);
  expect(sent(batcher.poll(150))).toEqual(["abort 1"]);
  expect(sent(batcher.poll(250))).toEqual([["b"]]);
});

test("requests are bounded in calls, in characters and in flight", () => {
  const batcher = new Batcher({ ...LIMITS, calls: 2, requests: 2 });
  batcher.want(1, calls("a", "b", "c", "d", "e"), 0);
  expect(sent(batcher.poll(100))).toEqual([["a", "b"], ["c", "d"]]);
  expect(batcher.wake()).toBeUndefined();
  batcher.answered(1, 0);
  batcher.answered(1, 1);
  batcher.ended(1, { again: false, retryAfter: undefined }, 200);
  expect(sent(batcher.poll(200))).toEqual([["e"]]);
  const small = new Batcher({ ...LIMITS, characters: 20 });
  small.want(1, calls("a".repeat(40), "b", "c"), 0);
  expect(sent(small.poll(100))).toEqual([["a".repeat(40)], ["b"], ["c"]]);
});

test("a broken request is asked again after a pause that grows, then given up", () => {
  const batcher = new Batcher({ ...LIMITS, retries: 2, pause: 1000 });
  const broken = { again: true, retryAfter: undefined };
  batcher.want(7, calls("a"), 0);
  batcher.poll(100);
  expect(batcher.ended(1, broken, 200)).toEqual([]);
  expect(batcher.poll(1199)).toEqual([]);
  expect(sent(batcher.poll(1200))).toEqual([["a"]]);
  expect(batcher.ended(2, broken, 1300)).toEqual([]);
  expect(batcher.wake()).toBe(3300);
  batcher.poll(3300);
  expect(batcher.ended(3, broken, 3400)).toEqual([{ key: keyOf(call("a")), cells: [7] }]);
});

test("the server's Retry-After is kept; a refusal is not asked again", () => {
  const batcher = new Batcher();
  batcher.want(1, calls("a"), 0);
  batcher.poll(100);
  batcher.ended(1, { again: true, retryAfter: 9000 }, 100);
  expect(batcher.wake()).toBe(9100);
  batcher.poll(9100);
  expect(batcher.ended(2, { again: false, retryAfter: undefined }, 9200)).toHaveLength(1);
});

test("what was cancelled and is wanted again goes out once", () => {
  const batcher = new Batcher();
  batcher.want(1, calls("a"), 0);
  batcher.want(1, calls(), 10);
  batcher.want(1, calls("a"), 20);
  expect(sent(batcher.poll(120))).toEqual([["a"]]);
});

test("stopping aborts what is under way and closes all that is open, sent or not", () => {
  const batcher = new Batcher({ ...LIMITS, calls: 1, requests: 1 });
  batcher.want(1, calls("a", "b"), 0);
  batcher.want(2, calls("b"), 0);
  expect(sent(batcher.poll(100))).toEqual([["a"]]);
  const { actions, stopped } = batcher.stop();
  expect(sent(actions)).toEqual(["abort 1"]);
  expect(stopped).toEqual([{ key: keyOf(call("a")), cells: [1] }, { key: keyOf(call("b")), cells: [1, 2] }]);
  expect([batcher.pending, batcher.inFlight, batcher.wake()]).toEqual([0, 0, undefined]);
  expect(batcher.answered(1, 0)).toBeUndefined();
  batcher.want(1, calls("a"), 200);
  expect(sent(batcher.poll(300))).toEqual([["a"]]);
});

test("more new calls than may go freely wait until they are allowed or refused; the window does not spin meanwhile", () => {
  const batcher = new Batcher({ ...LIMITS, freely: 2 });
  batcher.want(1, calls("a", "b"), 0);
  expect(sent(batcher.poll(100))).toEqual([["a", "b"]]);
  batcher.want(2, calls("c", "d", "e"), 200);
  expect(batcher.held()).toEqual([]);
  expect(batcher.poll(300)).toEqual([]);
  expect(batcher.held().map(({ args }) => args[0])).toEqual(["c", "d", "e"]);
  expect(batcher.wake()).toBeUndefined();
  batcher.allow();
  expect(sent(batcher.poll(301))).toEqual([["c", "d", "e"]]);
  // What broke is asked again without a question.
  batcher.ended(2, { again: true, retryAfter: undefined }, 400);
  expect(sent(batcher.poll(1_400))).toEqual([["c", "d", "e"]]);
  batcher.want(3, calls("f", "g", "h"), 1_500);
  batcher.poll(1_600);
  expect(batcher.refuse()).toEqual(["f", "g", "h"].map((text) => ({ key: keyOf(call(text)), cells: [3] })));
  expect([batcher.held(), batcher.pending]).toEqual([[], 5]);
});

test("what is held goes by itself once enough of it is wanted no more", () => {
  const batcher = new Batcher({ ...LIMITS, freely: 2 });
  batcher.want(1, calls("a", "b", "c"), 0);
  expect(batcher.poll(100)).toEqual([]);
  batcher.want(1, calls("a", "b"), 150);
  expect(batcher.wake()).toBe(0);
  expect(sent(batcher.poll(150))).toEqual([["a", "b"]]);
});

test("while the server is away nothing goes out; then what broke goes out at once", () => {
  const batcher = new Batcher({ ...LIMITS, retries: 1 });
  batcher.want(1, calls("a"), 0);
  batcher.poll(100);
  expect(batcher.ended(1, { again: true, retryAfter: undefined, isUnreachable: true }, 200)).toEqual([]);
  batcher.want(2, calls("b"), 250);
  expect([batcher.isOffline, batcher.poll(90_000), batcher.wake()]).toEqual([true, [], undefined]);
  batcher.online();
  expect(sent(batcher.poll(90_001))).toEqual([["a", "b"]]);
  expect(batcher.ended(2, { again: true, retryAfter: undefined, isUnreachable: true }, 90_002), "each try counts")
    .toEqual([{ key: keyOf(call("a")), cells: [1] }]);
});

test("a pause calls off what is under way and keeps it, and what comes, until it ends; answers that came stay away", () => {
  const batcher = new Batcher({ ...LIMITS, calls: 2 });
  batcher.want(1, calls("a", "b", "c"), 0);
  expect(sent(batcher.poll(100))).toEqual([["a", "b"], ["c"]]);
  batcher.answered(1, 0);
  expect(batcher.pause(150)).toEqual([{ kind: "abort", request: 1 }, { kind: "abort", request: 2 }]);
  expect([batcher.pending, batcher.inFlight, batcher.isPaused]).toEqual([2, 0, true]);
  expect(batcher.stateOf(keyOf(call("b")))).toBe("waiting");
  batcher.want(2, calls("d"), 160);
  expect([batcher.poll(900), batcher.wake()]).toEqual([[], undefined]);
  expect(batcher.ended(1, { again: true, retryAfter: undefined }, 900)).toEqual([]);
  batcher.resume();
  expect(batcher.wake()).toBeLessThanOrEqual(900);
  expect(sent(batcher.poll(900))).toEqual([["b", "c"], ["d"]]);
  expect(batcher.stateOf(keyOf(call("b")))).toBe("sent");
  expect(batcher.stateOf(keyOf(call("a")))).toBeUndefined();
});

test("what is stopped during a pause ends the pause", () => {
  const batcher = new Batcher();
  batcher.want(1, calls("a"), 0);
  batcher.poll(100);
  batcher.pause(110);
  expect(batcher.stop().stopped.map(({ cells }) => cells)).toEqual([[1]]);
  expect(batcher.isPaused).toBe(false);
});

test("calls of another model go in a request of their own, and keep nobody waiting", () => {
  const batcher = new Batcher();
  const of = (text: string, model?: string): Call => ({ ...call(text), ...(model === undefined ? {} : { model }) });
  const mixed = [of("a"), of("a", "n"), of("b"), of("b", "n"), of("c", "m")];
  batcher.want(1, new Map(mixed.map((one) => [keyOf(one), one])), 0);
  const actions = batcher.poll(100);
  const told = actions.flatMap((action) => (action.kind === "send" ? [requestOf(action.calls)] : []));
  expect(told).toEqual([
    { calls: [call("a"), call("b")] }, { model: "n", calls: [call("a"), call("b")] }, { model: "m", calls: [call("c")] },
  ]);
  expect(batcher.inFlight).toBe(3);
  expect(batcher.answered(2, 1)?.key).toBe('["rate",["b"],"n"]');
});
