// Which routes the live view asks, over a server of the test's own.

import { afterEach, expect, test, vi } from "vitest";

import { type Source, poll, stream, trace, whatIf } from "../src/net/live";

afterEach(() => vi.unstubAllGlobals());

test("the live view asks for the queue of the model that it looks at", async () => {
  const asked: string[] = [];
  vi.stubGlobal("sessionStorage", { getItem: () => "rs-key" });
  vi.stubGlobal("document", { hidden: false, addEventListener: () => undefined, removeEventListener: () => undefined });
  vi.stubGlobal("fetch", (path: string) => {
    asked.push(path);
    return Promise.resolve(path.includes("events") ? new Response("", { status: 404 }) : new Response("{}"));
  });
  const listener = { hello: () => undefined, frame: () => undefined, counts: () => undefined, state: () => undefined };
  /** What a source asks first, and where the server has no stream next. */
  const first = async (source: Source, count: number, model?: string) => {
    const from = asked.length;
    const stop = source(listener, model);
    await vi.waitFor(() => expect(asked.length).toBeGreaterThanOrEqual(from + count));
    stop();
    return asked.slice(from, from + count);
  };
  expect(await first(stream, 2)).toEqual(["v1/scheduler/events", "v1/scheduler"]);
  expect(await first(stream, 2, "org/n")).toEqual(["v1/scheduler/events?model=org%2Fn", "v1/scheduler?model=org%2Fn"]);
  expect(await first(poll, 1, "n")).toEqual(["v1/scheduler?model=n"]);
  await whatIf("all", "n");
  await trace("n");
  expect(asked.slice(-2)).toEqual(["v1/scheduler/what-if?model=n", "v1/scheduler/trace?model=n"]);
});
