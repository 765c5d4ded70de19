// How a run goes on, as the page and the add-ins show it.

import { RunProgress, type RunState, type RunView } from "relserve-client/run-progress";
import { noUsage } from "relserve-client/usage";
import { expect, test } from "vitest";

const at = (now: number, pending: number, rest: Partial<RunState> & { failed?: number } = {}): RunState => ({
  pending, stopped: 0, usage: { ...noUsage(), failed: rest.failed ?? 0 }, now, isReconnecting: false, isPaused: false, ...rest,
});
const views = (...states: RunState[]): RunView[] => {
  const run = new RunProgress();
  return states.map((state) => run.update(state));
};

test("a run counts what is done, guesses the rest, and ends with the time it took", () => {
  expect(views(at(0, 0), at(1_000, 100), at(2_000, 75, { failed: 1 }), at(5_000, 0, { failed: 2 }), at(6_000, 0))).toEqual([
    { kind: "idle" },
    { kind: "running", done: 0, most: 100, failed: 0, leftMs: undefined },
    { kind: "running", done: 25, most: 100, failed: 1, leftMs: 3_000 },
    { kind: "ended", most: 100, failed: 2, stopped: 0, tookMs: 4_000 },
    { kind: "idle" },
  ]);
});

test("what failed or was stopped before a run is not its own", () => {
  const [, , ended] = views(at(0, 10, { failed: 7, stopped: 3 }), at(100, 5, { failed: 7, stopped: 3 }), at(200, 0, { failed: 8, stopped: 7 }));
  expect(ended).toEqual({ kind: "ended", most: 10, failed: 1, stopped: 4, tookMs: 200 });
});

test("a pause is no time of the run, and a server that is away is told", () => {
  const [, paused, , after] = views(at(0, 10), at(100, 5, { isPaused: true }), at(900, 5, { isPaused: true }), at(900, 5));
  expect(paused).toMatchObject({ kind: "paused", done: 5 });
  expect(after).toMatchObject({ kind: "running", leftMs: 100 });
  expect(views(at(0, 10, { isReconnecting: true }))[0]).toMatchObject({ kind: "reconnecting" });
});
