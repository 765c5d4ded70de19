// A server that is not ready in time: its ticket. The test of the same name for Sheets says when it runs.

import { describe, expect, test } from "vitest";

import { type Net, askCells } from "../../shared/wire";

const url = process.env.RELSERVE_URL ?? "";
const key = process.env.RELSERVE_KEY ?? "";

describe.skipIf(!url || !process.env.RELSERVE_LATE)("against a server that is late", () => {
  test("what the deadline cut off is fetched by its ticket", async () => {
    const fetches: string[] = [];
    const net: Net = {
      fetch: (at, init) => {
        fetches.push(init?.method ?? "GET");
        return fetch(at, init);
      },
      sleep: (milliseconds) => new Promise((resolve) => void setTimeout(resolve, milliseconds)),
    };
    const calls = Array.from({ length: 500 }, (_, i) => ({ function: "summarize", args: [`text ${i} of the tardy`] }));
    const seen = new Set<number>();
    const bounds = { deadlineMs: 60, lookMs: 50, looksMs: 200, failures: 3 };
    await askCells(net, { url, key }, calls, new AbortController().signal, {
      onCell: (index, answer) => {
        if (answer.value !== undefined) seen.add(index);
      },
      onHeard: () => undefined,
    }, bounds);
    expect(seen.size).toBe(500);
    expect(fetches[0]).toBe("POST");
    expect(new Set(fetches.slice(1))).toEqual(new Set(["GET"]));
  });
});
