// The wire: streams, tickets, and connections that break, with replies in the test's hands.

import type { Answer } from "relserve-client/calls";
import { expect, test } from "vitest";

import { type Net, BOUNDS, askCells } from "../../shared/wire";

const SERVER = { url: "https://x.example", key: "rs-1" };
const CALLS = ["a", "b"].map((text) => ({ function: "ask", args: [text] }));

type Step = Response | Error;

/** A net that gives these replies in turn and counts pauses instead of making them. */
function net(...steps: Step[]) {
  const asked: { method: string; url: string; body: unknown }[] = [];
  const pauses: number[] = [];
  const at: Net = {
    fetch: (url, init) => {
      asked.push({ method: init?.method ?? "GET", url: String(url), body: JSON.parse(String(init?.body ?? "null")) });
      const step = steps.shift() ?? new Error("nothing more was expected");
      return step instanceof Error ? Promise.reject(step) : Promise.resolve(step);
    },
    sleep: (milliseconds, signal) => {
      pauses.push(milliseconds);
      return signal.aborted ? Promise.reject(signal.reason) : Promise.resolve();
    },
  };
  return { at, asked, pauses };
}

const event = (name: string, data: unknown) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
const json = (body: unknown, status = 200, headers: Record<string, string> = {}) => new Response(JSON.stringify(body), { status, headers });
const partial = () => new Response(event("cell", { index: 1, value: "B" }) + event("done", { status: "partial", ticket: "cl-9" }));
const whole = () => json({ status: "completed", cells: [{ value: "A" }, { value: "B" }], usage: { prompt_tokens: 5 } });

async function ask(at: Net, signal = new AbortController().signal) {
  const cells: [number, Answer][] = [];
  const usage = await askCells(at, SERVER, CALLS, signal, { onCell: (index, answer) => cells.push([index, answer]), onHeard: () => undefined });
  return { cells, usage };
}

test("a stream gives each cell as it comes, and the usage at its end", async () => {
  const done = event("done", { status: "completed", usage: { prompt_tokens: 5 } });
  const { at, asked } = net(new Response(event("cell", { index: 1, value: "B" }) + event("cell", { index: 0, error: { message: "no", type: "server_error" } }) + done));
  const { cells, usage } = await ask(at);
  expect(cells).toEqual([[1, { value: "B" }], [0, { error: { code: "#N/A", note: "no" } }]]);
  expect(usage).toEqual({ prompt_tokens: 5 });
  expect(asked).toEqual([{ method: "POST", url: "https://x.example/v1/cells?details=true", body: { calls: CALLS, stream: true, deadline_ms: BOUNDS.deadlineMs } }]);
});

test("a chosen model goes with the calls, and tokens come with the cells", async () => {
  const details = { usage: { prompt_tokens: 4, completion_tokens: 1 } };
  const { at, asked } = net(new Response(event("cell", { index: 0, value: "A", details }) + event("done", { status: "completed" })));
  const seen: Answer[] = [];
  const listener = { onCell: (_: number, answer: Answer) => seen.push(answer), onHeard: () => undefined };
  await askCells(at, { ...SERVER, model: "small" }, CALLS, new AbortController().signal, listener);
  expect(asked[0]?.body).toMatchObject({ model: "small" });
  expect(seen).toEqual([{ value: "A", details }]);
});

test("what the deadline cut off comes by the ticket, each cell once, however often the connection breaks", async () => {
  const running = json({ status: "running", cells: [{ pending: true }, { value: "B" }] });
  const { at, asked, pauses } = net(partial(), running, new TypeError("offline"), new TypeError("offline"), json("", 502), whole());
  const { cells, usage } = await ask(at);
  expect(cells).toEqual([[1, { value: "B" }], [0, { value: "A" }]]);
  expect(usage).toEqual({ prompt_tokens: 5 });
  expect(asked.map(({ method }) => method)).toEqual(["POST", "GET", "GET", "GET", "GET", "GET"]);
  expect(Math.max(...pauses)).toBeLessThanOrEqual(BOUNDS.looksMs);
});

test("a ticket that nobody wants any more is called off", async () => {
  const abort = new AbortController();
  const { at, asked } = net(partial(), json({}));
  const sleep = at.sleep;
  at.sleep = (milliseconds, signal) => {
    abort.abort();
    return sleep(milliseconds, signal);
  };
  await expect(ask(at, abort.signal)).rejects.toThrow();
  expect(asked.at(-1)).toMatchObject({ method: "DELETE", url: "https://x.example/v1/cells/cl-9" });
});

test("a ticket that is gone is a request to be asked again; a server that stays away ends it", async () => {
  const gone = net(partial(), json({ error: { message: "cl-9 not found" } }, 404));
  await expect(ask(gone.at)).rejects.toMatchObject({ again: true });
  const away = net(partial(), ...Array.from({ length: 20 }, () => new TypeError("offline")));
  await expect(ask(away.at)).rejects.toMatchObject({ status: 0, message: "the server at https://x.example cannot be reached" });
  expect(away.asked).toHaveLength(BOUNDS.failures + 2);
});

test("refusals carry the server's words and its time to wait", async () => {
  const busy = { error: { message: "9 rows are waiting", type: "rate_limit_exceeded" } };
  await expect(ask(net(json(busy, 429, { "Retry-After": "2" })).at)).rejects.toMatchObject({ message: "9 rows are waiting", status: 429, retryAfter: 2_000, again: true });
  await expect(ask(net(json({ error: { message: "unknown key" } }, 401)).at)).rejects.toMatchObject({ status: 401, again: false });
  await expect(ask(net(new TypeError("refused")).at)).rejects.toMatchObject({ status: 0, again: true });
  await expect(ask(net(new Response(event("cell", { index: 0, value: "A" }))).at)).rejects.toMatchObject({ message: "the answers ended early" });
});
