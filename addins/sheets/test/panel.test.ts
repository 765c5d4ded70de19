// The sidebar's way to the server and to the cells.

import { expect, test } from "vitest";

import { type Run, scriptNet } from "../panel/net";
import type { Relayed } from "../src/panel-server";
import { type PanelSheet, read, writeAnswers, writeCell } from "../src/panel-sheet";

const DATE = (date: Date) => date.toISOString().slice(0, 10);

/** A script whose replies are in the test's hands. */
function script() {
  const asked: { call: string; reply: (relayed: Relayed) => void; fail: (error: Error) => void }[] = [];
  const run = ((_: string, method: string, path: string) =>
    new Promise((reply, fail) => asked.push({ call: `${method} ${path}`, reply, fail }))) as unknown as Run;
  return { asked, net: scriptNet(run, () => "https://x.example/base", () => Promise.resolve()) };
}

const settle = async () => {
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
};

test("a request goes through the script, and its reply comes back with its status and its wait", async () => {
  const { asked, net } = script();
  const reply = net.fetch("https://x.example/base/v1/models");
  asked[0]?.reply({ status: 429, text: '{"a":1}', retryAfter: "7" });
  expect(asked.map(({ call }) => call)).toEqual(["GET /v1/models"]);
  expect([(await reply).status, (await reply).headers.get("Retry-After"), await (await reply).json()]).toEqual([429, "7", { a: 1 }]);
  expect(net.isLost()).toBe(false);
});

test("no server and no script are a way that is lost, until it is there again", async () => {
  const { asked, net } = script();
  for (const end of [() => asked.at(-1)?.reply({ status: 0, text: "" }), () => asked.at(-1)?.fail(new Error("offline"))]) {
    const reply = net.fetch("https://x.example/base/healthz");
    end();
    await expect(reply).rejects.toThrow();
    expect(net.isLost()).toBe(true);
  }
  const reply = net.fetch("https://x.example/base/healthz");
  asked.at(-1)?.reply({ status: 200, text: "" });
  await reply;
  expect(net.isLost()).toBe(false);
});

test("a question that is called off before its ticket came is called off by the ticket when it comes", async () => {
  const { asked, net } = script();
  const abort = new AbortController();
  const reply = net.fetch("https://x.example/base/v1/cells?details=true", { method: "POST", body: "{}", signal: abort.signal });
  abort.abort();
  await expect(reply).rejects.toThrow();
  asked[0]?.reply({ status: 200, text: 'event: done\ndata: {"status":"partial","ticket":"cl-7"}\n\n' });
  await settle();
  expect(asked.map(({ call }) => call)).toEqual(["POST /v1/cells?details=true", "DELETE /v1/cells/cl-7"]);
  // One whose ticket had come is called off by who looks at it.
  const again = new AbortController();
  const second = net.fetch("https://x.example/base/v1/cells?details=true", { method: "POST", body: "{}", signal: again.signal });
  asked[2]?.reply({ status: 200, text: '{"ticket":"cl-8"}' });
  await second;
  again.abort();
  await settle();
  expect(asked).toHaveLength(3);
});

/** A spreadsheet of one sheet that writes down what is done to it. */
function book(values: unknown[][], columns = 26) {
  const log: string[] = [];
  const sheet: PanelSheet = {
    getSheetId: () => 7,
    getName: () => "Reviews",
    getLastRow: () => values.length,
    getMaxColumns: () => columns,
    insertColumnAfter: (column) => log.push(`insert after ${column}`),
    getDataRange: () => ({ getValues: () => values }),
    getRange: (row, column, rows) => ({
      setValues: (cells) => log.push(`values ${row},${column} ${rows}: ${JSON.stringify(cells)}`),
      setFormula: (formula) => log.push(`formula ${row},${column}: ${formula}`),
    }),
  };
  return { log, book: { getActiveSheet: () => sheet, getSheets: () => [sheet] } };
}

test("a sheet is read as values that a page can be sent", () => {
  const day = new Date("2026-01-02T00:00:00Z");
  expect(read(book([["Review", "On"], ["fine", day], ["", "#N/A no"], [4, true]]).book, DATE)).toEqual({
    id: "7", name: "Reviews", row: 0, column: 0, values: [["Review", "On"], ["fine", "2026-01-02"], [null, null], [4, true]],
  });
  expect(read(book([]).book, DATE)).toBeNull();
});

test("answers are written as texts in one go, where the column goes, and a formula as a formula", () => {
  const { log, book: open } = book([["a"]], 3);
  writeCell(open, { sheet: "7", row: 0, column: 2 }, "=IMPORTDATA(1)");
  writeCell(open, { sheet: "7", row: 1, column: 2 }, "=AI_RATE(A2:A9)");
  writeAnswers(open, { sheet: "7", row: 4, column: 3 }, ["good", null, 4, "=1+1"]);
  expect(log).toEqual([
    'values 1,3 1: [["\'=IMPORTDATA(1)"]]', "formula 2,3: =AI_RATE(A2:A9)", "insert after 3",
    'values 5,4 4: [["\'good"],[""],[4],["\'=1+1"]]',
  ]);
  expect(() => writeAnswers(open, { sheet: "8", row: 0, column: 0 }, ["x"])).toThrow("gone");
});
