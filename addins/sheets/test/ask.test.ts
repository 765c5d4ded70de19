// What a custom function asks and shows, in a world where time is a number and the server a function.

import { expect, test } from "vitest";

import { PENDING_MARK, run } from "../src/ask";
import type { HttpRequest } from "../src/google";
import { RATE_LIMITS } from "../src/rate-limit";
import { type Reply, type TestHost, testHost } from "./google";

interface Body {
  calls: { function: string; args: unknown[] }[];
  deadline_ms: number;
}

const bodyOf = (request: HttpRequest) => JSON.parse(request.payload ?? "null") as Body;

/** A server that answers each call with its first argument in capitals. */
function answers(request: HttpRequest): Reply {
  const cells = bodyOf(request).calls.map(({ args }) => ({ value: String(args[0]).toUpperCase() }));
  return { status: 200, body: { status: "completed", cells } };
}

const classify = (at: TestHost, text: unknown, kept?: unknown) => run(at, "AI.CLASSIFY", [text, "A,B"], kept);

test("a range is one request, equal cells are asked once, blank cells ask nothing", () => {
  const at = testHost(answers);
  const shown = classify(at, [["a"], [""], ["b"], ["a"]]);
  expect(shown).toEqual([["A"], [""], ["B"], ["A"]]);
  expect(at.asked).toHaveLength(1);
  expect(bodyOf(at.asked[0] as HttpRequest).calls.map(({ args }) => args)).toEqual([["a", "A,B"], ["b", "A,B"]]);
  expect(at.asked[0]?.headers).toEqual({ Authorization: "Bearer rs-test" });
});

test("a single cell gives a single value, a blank one asks nothing, a range of two columns keeps its shape", () => {
  const at = testHost(answers);
  expect(classify(at, "a")).toBe("A");
  expect(classify(at, "")).toBe("");
  expect(classify(at, [[""]])).toBe("");
  expect(classify(at, [["a", "b"], ["c", ""]])).toEqual([["A", "B"], ["C", ""]]);
  expect(at.asked).toHaveLength(2);
});

test("a second calculation of the same cells asks nothing; another key knows nothing of it", () => {
  const at = testHost(answers);
  classify(at, [["a"], ["b"]]);
  expect(classify(at, [["a"], ["b"]])).toEqual([["A"], ["B"]]);
  expect(at.asked).toHaveLength(1);
  at.properties.setProperty("relserve.key", "rs-other");
  classify(at, [["a"], ["b"]]);
  expect(at.asked).toHaveLength(2);
});

test("a kept answer asks nothing, also without any server set", () => {
  const at = testHost(answers);
  at.properties.deleteProperty("relserve.key");
  expect(classify(at, "a", "B")).toBe("B");
  expect(classify(at, [["a"], ["b"]], [["B"], ["A"]])).toEqual([["B"], ["A"]]);
  expect(() => classify(at, "a", "")).toThrow("menu RelServe");
  expect(at.asked).toHaveLength(0);
});

test("numbers, dates and lists reach the server as what they are", () => {
  const at = testHost(answers);
  run(at, "AI.RATE", [new Date("2026-03-01T00:00:00Z"), "", "", 9], undefined);
  run(at, "AI.TAG", ["x", [["red"], [""], ["blue"]]], undefined);
  const [first, second] = at.asked.map((request) => bodyOf(request).calls[0]?.args);
  expect(first).toEqual(["2026-03-01", null, null, 9]);
  expect(second).toEqual(["x", [["red"], ["blue"]]]);
});

test("an argument that is an error, or waits, is not asked about", () => {
  const at = testHost(answers);
  expect(() => classify(at, "#REF!")).toThrow("#N/A");
  expect(classify(at, [["a"], [PENDING_MARK]])).toEqual([["A"], [expect.stringContaining("#N/A")]]);
  expect(bodyOf(at.asked[0] as HttpRequest).calls).toHaveLength(1);
});

test("a list spills down; within a range its lines share the cell", () => {
  const at = testHost((request) => ({
    status: 200, body: { status: "completed", cells: bodyOf(request).calls.map(() => ({ value: ["x", "y"] })) },
  }));
  expect(run(at, "AI.LIST", ["colours"], undefined)).toEqual([["x"], ["y"]]);
  expect(run(at, "AI.LIST", [[["colours"], ["shapes"]]], undefined)).toEqual([["x\ny"], ["x\ny"]]);
});

/** A server that is slow: a partial reply at the deadline, its ticket open for so many looks. */
function slow(looks: number): (request: HttpRequest) => Reply {
  let left = looks;
  const cells = [{ value: "A" }, { pending: true }];
  return (request) => {
    if (request.method === "post") {
      return { status: 200, ms: bodyOf(request).deadline_ms, body: { status: "partial", cells, ticket: "cl-7" } };
    }
    expect(request.url).toBe("https://relserve.example/v1/cells/cl-7");
    left -= 1;
    if (left >= 0) return { status: 200, body: { status: "running", cells } };
    return { status: 200, body: { status: "completed", cells: [{ value: "A" }, { value: "B" }] } };
  };
}

test("what is late shows a mark within 25 seconds, and a later calculation gets it by the ticket", () => {
  const at = testHost(slow(0));
  const began = at.now();
  expect(classify(at, [["a"], ["b"]])).toEqual([["A"], [PENDING_MARK]]);
  expect(at.now() - began).toBeLessThanOrEqual(25_000);
  expect(classify(at, [["a"], ["b"]])).toEqual([["A"], ["B"]]);
  expect(at.asked.map(({ method }) => method)).toEqual(["post", "get"]);
  classify(at, [["a"], ["b"]]);
  expect(at.asked).toHaveLength(2);
});

test("a ticket that is not ready is looked at until the time is over", () => {
  const at = testHost(slow(100));
  classify(at, [["a"], ["b"]]);
  const began = at.now();
  expect(classify(at, [["a"], ["b"]])).toEqual([["A"], [PENDING_MARK]]);
  expect(at.now() - began).toBeLessThanOrEqual(25_000);
  expect(at.asked.length).toBeGreaterThan(5);
  expect(at.asked.length).toBeLessThan(20);
});

test("a single late answer is an error that says what to do, so that nothing is computed from it", () => {
  const at = testHost((request) => ({
    status: 200, ms: bodyOf(request).deadline_ms, body: { status: "partial", cells: [{ pending: true }], ticket: "cl-1" },
  }));
  expect(() => classify(at, "a")).toThrow(/^#PENDING! .*Fetch late answers/);
});

test("a ticket that the server does not know any more is asked again", () => {
  let posts = 0;
  const at = testHost((request) => {
    if (request.method === "get") return { status: 404, body: { error: { message: "cl-7 not found", type: "invalid_request_error" } } };
    posts += 1;
    return posts === 1 ? slow(0)(request) : answers(request);
  });
  classify(at, [["a"], ["b"]]);
  expect(classify(at, [["a"], ["b"]])).toEqual([["A"], ["B"]]);
});

test("a cell with an error says so in its place, and is asked again by the next calculation", () => {
  const error = { message: "the row failed: NaN logits", type: "server_error" };
  const at = testHost(() => ({ status: 200, body: { status: "completed", cells: [{ value: "A" }, { error }] } }));
  expect(classify(at, [["a"], ["b"]])).toEqual([["A"], ["#N/A the row failed: NaN logits"]]);
  classify(at, [["a"], ["b"]]);
  expect(at.asked).toHaveLength(2);
});

test("a bad label list is #VALUE! with the server's words, without the place in the request", () => {
  const message = "invalid `calls[0]`: classify: argument `labels` has `a` twice (the other is `A`)";
  const at = testHost(() => ({ status: 400, body: { error: { message, type: "invalid_request_error" } } }));
  for (const text of ["a", [["a"], ["b"]]]) {
    expect(() => classify(at, text)).toThrow(/^#VALUE! classify: argument `labels` has `a` twice/);
  }
});

test("401, a proxy's page and a server that is not there are one error each", () => {
  const unknown = { error: { message: "unknown or revoked API key", type: "authentication_error" } };
  const cases: [Reply | undefined, string][] = [
    [{ status: 401, body: unknown }, "#N/A unknown or revoked API key"],
    [{ status: 502, body: "<html>" }, "#N/A the server answered 502"],
    [undefined, "#N/A the server at https://relserve.example cannot be reached"],
  ];
  for (const [reply, message] of cases) {
    const at = testHost(() => {
      if (!reply) throw new Error("DNS error: https://relserve.example");
      return reply;
    });
    for (const text of ["a", [["a"], ["b"]]]) expect(() => classify(at, text)).toThrow(message);
  }
});

test("Google's own refusals say what to do", () => {
  const cases: [string, string][] = [
    ["Service invoked too many times for one day: urlfetch.", "go on tomorrow"],
    ["You do not have permission to call UrlFetchApp.fetchAll", "menu RelServe"],
  ];
  for (const [words, shown] of cases) {
    const at = testHost(() => {
      throw new Error(words);
    });
    expect(() => classify(at, "a")).toThrow(shown);
  }
});

test("429 with Retry-After waits and asks again, where the time allows it", () => {
  const busy = (seconds: string) => ({
    status: 429, headers: { "Retry-After": seconds }, body: { error: { message: "9 rows wait", type: "rate_limit_exceeded" } },
  });
  let first = true;
  const at = testHost((request) => {
    const reply = first ? busy("3") : answers(request);
    first = false;
    return reply;
  });
  const began = at.now();
  expect(classify(at, "a")).toBe("A");
  expect(at.now() - began).toBeGreaterThanOrEqual(3_000);
  expect(() => classify(testHost(() => busy("60")), "a")).toThrow("#N/A 9 rows wait (try again in 60 s)");
});

test("many cells go out as several requests at once", () => {
  const at = testHost(answers);
  const rows = Array.from({ length: 12_000 }, (_, i) => [`text ${i}`]);
  expect(classify(at, rows)).toEqual(rows.map(([text]) => [text?.toUpperCase()]));
  expect(at.asked.map((request) => bodyOf(request).calls.length)).toEqual([5_000, 5_000, 2_000]);
});

test("answers too large for Google's cache are shown all the same", () => {
  const at = testHost(answers);
  const rows = Array.from({ length: 40 }, (_, i) => [`${i} ${"ö".repeat(2_000)}`]);
  expect(classify(at, rows)).toHaveLength(40);
});

test("a formula dragged over many rows is stopped with words, and goes on after a while", () => {
  const at = testHost(answers);
  for (let i = 0; i < RATE_LIMITS.perMinute; i += 1) classify(at, `text ${i}`);
  expect(() => classify(at, "one more")).toThrow("use one formula over the range");
  expect(at.asked).toHaveLength(RATE_LIMITS.perMinute);
  at.clock.now += 120_000;
  expect(classify(at, "one more")).toBe("ONE MORE");
});

test("ten questions in a minute without an answer in time stop new ones, not looks at tickets", () => {
  let isReady = false;
  const at = testHost((request) => (isReady && request.method === "post" ? answers(request) : slow(isReady ? 0 : 99)(request)));
  const began = at.now();
  for (let i = 0; i < RATE_LIMITS.latePerMinute; i += 1) {
    // Google runs many formulas side by side.
    at.clock.now = began;
    classify(at, [["a"], [`b ${i}`]]);
  }
  const asked = at.asked.length;
  expect(() => classify(at, [["a"], ["new"]])).toThrow("nothing new is asked for a minute");
  expect(at.asked).toHaveLength(asked);
  isReady = true;
  expect(classify(at, [["a"], ["b 0"]])).toEqual([["A"], ["B"]]);
  expect(at.asked.at(-1)?.method).toBe("get");
  at.clock.now += 120_000;
  expect(classify(at, [["a"], ["new"]])).toEqual([["A"], ["NEW"]]);
});

test("a server that is down is not asked for ever", () => {
  const at = testHost(() => {
    throw new Error("down");
  });
  for (let i = 0; i < 30; i += 1) expect(() => classify(at, `text ${i}`)).toThrow("#N/A");
  expect(at.asked).toHaveLength(10);
});
