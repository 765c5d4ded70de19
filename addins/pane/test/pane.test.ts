// The pane's pure parts: its sentences, the table of the open sheet, and a column that fills.

import { CellError, PENDING, type Scalar } from "relserve-client/value";
import { RequestError } from "relserve-client/wire";
import { expect, test } from "vitest";

import { STOPPED } from "../../shared/engine";
import { Fill, type Written } from "../fill";
import { estimateOf } from "../server";
import { openTable } from "../table";
import { estimateLines, problemLine, refusal, runLine } from "../words";

test("a run says how far it is and how it ended", () => {
  const running = { kind: "running", done: 1_200, most: 5_000, failed: 3, leftMs: 4_200 } as const;
  expect(runLine(running)).toBe("1,200 of 5,000 cells, 3 failed, 4 s left");
  expect(runLine({ ...running, failed: 0, leftMs: undefined })).toBe("1,200 of 5,000 cells");
  expect(runLine({ ...running, kind: "reconnecting" })).toMatch(/^Reconnecting: .*1,200 of 5,000/);
  expect(runLine({ kind: "ended", most: 1, failed: 0, stopped: 0, tookMs: 300 })).toBe("1 cell in under a second.");
  expect(runLine({ kind: "ended", most: 50, failed: 2, stopped: 0, tookMs: 600_000 })).toBe("50 cells in 10 min, 2 of them without an answer.");
  expect(runLine({ kind: "ended", most: 50, failed: 0, stopped: 20, tookMs: 1 })).toBe("Stopped: 30 of 50 cells are answered and stay.");
});

test("a wrong key, a spent budget and a server's refusal say what to do", () => {
  expect(problemLine(new RequestError("unknown", 401, undefined))).toMatch(/does not know this key.*Sign in/);
  expect(problemLine(new RequestError("spent", 429, undefined, "budget_spent"))).toMatch(/limits\.tenant_day_cell_tokens_max.*midnight UTC/);
  expect(problemLine(new RequestError("no server is set", 401, undefined, "no_server"))).toBe("No server is set.");
  expect(problemLine(new RequestError("the model `x` does not exist", 404, undefined))).toBe("The model `x` does not exist.");
});

test("an estimate is made of what the server tells, and holds back what surely is over the budget", async () => {
  const told: Record<string, unknown> = {
    "/v1/catalogue": { data: [{ name: "rate", template: "x".repeat(40), max_tokens: 4 }] },
    "/v1/usage?days=1": { cells_day_tokens: { used: 90, max: 100, setting: "limits.tenant_day_cell_tokens_max" } },
  };
  const get = (path: string) => Promise.resolve(path in told ? Response.json(told[path]) : new Response("", { status: 404 }));
  const found = await estimateOf(get, [{ function: "rate", args: ["y".repeat(20)] }]);
  expect(Object.fromEntries(estimateLines(found))).toEqual({
    "Cells to ask": "1", "Prompt tokens": "about 15, of which 5 are the rows' own", "Answer tokens": "4 at most",
    Time: "this server tells no costs", "Budget of today": "10 of 100 tokens left",
  });
  expect(refusal(found)).toMatchObject({ isOver: true, words: expect.stringContaining("tenant_day_cell_tokens_max") as string });
  told["/v1/usage?days=1"] = { cells_day_tokens: { used: 0, max: 17, setting: null } };
  expect(refusal(await estimateOf(get, [{ function: "rate", args: ["y".repeat(20)] }]))).toMatchObject({ isOver: false });
  expect(estimateLines({ ...found, budget: undefined })).toContainEqual(["Budget of today", "this server tells none"]);
});

test("a sheet whose cells begin in C5 has its table there", () => {
  const open = openTable({ id: "1", name: "S", row: 4, column: 2, values: [["Review", null], ["fine", 5], ["poor", 1]] });
  expect(open?.table).toEqual({ headers: [{ name: "Review", column: 2 }, { name: "D", column: 3 }], first: 5, last: 6, free: 4 });
  expect([open?.value(6, 3), open?.value(0, 0)]).toEqual([1, null]);
  expect(openTable({ id: "1", name: "S", row: 0, column: 0, values: [] })).toBeUndefined();
});

test("a column that fills writes what is new, one write at a time, and what was stopped stays blank", async () => {
  const writes: [number, Written[]][] = [];
  let release: () => void = () => undefined;
  const fill = new Fill((from, answers) => {
    writes.push([from, answers]);
    return new Promise((resolve) => {
      release = resolve;
    });
  }, () => undefined);
  const next = async () => {
    release();
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
  };
  fill.show([[PENDING], ["b"], [PENDING], [PENDING]]);
  fill.show([["a"], ["b"], [PENDING], [PENDING]]);
  fill.show([["a"], ["b"], [PENDING], ["d"]]);
  expect(writes).toEqual([[1, ["b"]]]);
  await next();
  expect(writes[1]).toEqual([0, ["a", "b", null, "d"]]);
  fill.show([["a"], ["b"], [STOPPED], ["d"]]);
  await next();
  fill.show([["a"], ["b"], [new CellError("#N/A", "busy")], ["d"]]);
  await next();
  expect(writes.slice(2)).toEqual([[2, ["#N/A busy"]]]);
});

test("what shows nothing new writes nothing, and what comes after it is written", async () => {
  const writes: Written[][] = [];
  const fill = new Fill((_, answers) => Promise.resolve(void writes.push(answers)), () => undefined);
  for (const row of [PENDING, STOPPED, "a"] as Scalar[]) {
    fill.show([[row]]);
    await fill.settled();
  }
  expect(writes).toEqual([["a"]]);
});

test("a sheet that refuses a write is told once", async () => {
  const told: unknown[] = [];
  const fill = new Fill(() => Promise.reject(new Error("the sheet is protected")), (error) => told.push(error));
  fill.show([["a"]]);
  await fill.settled();
  expect(told).toEqual([new Error("the sheet is protected")]);
});
