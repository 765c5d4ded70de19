// The built Excel script against a running server: RELSERVE_URL and RELSERVE_KEY name it.

import { afterEach, describe, expect, test, vi } from "vitest";

import type { Net } from "../../shared/wire";
import { greet } from "../src/host";
import { FakeError, type Streaming, formula, load } from "./office";

const url = process.env.RELSERVE_URL ?? "";
const key = process.env.RELSERVE_KEY ?? "";
const LABELS = ["good", "bad"];

describe.skipIf(!url)("against a running server", () => {
  afterEach(() => {
    vi.restoreAllMocks();
    vi.unstubAllGlobals();
  });

  function classify(server = { url, key }): Streaming {
    const run = load(JSON.stringify(server)).get("CLASSIFY");
    if (!run) throw new Error("CLASSIFY is not registered");
    return run;
  }
  const labels = [["good,bad"]];

  test("a column of 1,000 cells and a cell that asks the same are one request", async () => {
    const fetches = vi.spyOn(globalThis, "fetch");
    const run = classify();
    const rows = Array.from({ length: 1_000 }, (_, i) => [`review ${i} is ${LABELS[i % 2]}`]);
    const [column, cell] = [formula(run, rows, labels, null), formula(run, [rows[7]], labels, null)];
    const [shown, one] = await Promise.all([column.settled, cell.settled]);
    expect(shown).toHaveLength(1_000);
    expect(shown.every((row) => row.length === 1 && LABELS.includes(String(row[0])))).toBe(true);
    expect(one).toEqual([shown[7]]);
    // A server that is slow to answer is asked beside it whether it is there.
    const asked = fetches.mock.calls.filter(([url]) => String(url).includes("/v1/cells"));
    expect(asked).toHaveLength(1);
    expect(formula(run, rows.slice(0, 9), labels, null).seen).toEqual([shown.slice(0, 9)]);
  });

  test("a bad label list, a key that nobody knows and a server that is not there are errors with words", async () => {
    const cases: [{ url: string; key: string }, string, string, RegExp][] = [
      [{ url, key }, "a,A", "#VALUE!", /labels.* has `A` twice/],
      [{ url, key: "rs-nobody" }, "a,b", "#N/A", /unknown or revoked API key/],
    ];
    for (const [server, list, code, words] of cases) {
      const [[error]] = (await formula(classify(server), [["x"]], [[list]], null).settled) as [[FakeError]];
      expect(error).toMatchObject({ code, message: expect.stringMatching(words) as unknown });
    }
  });

  test("the pane's test of address and key tells what is wrong", async () => {
    vi.stubGlobal("location", { origin: "https://pane.example" });
    const net: Net = { fetch: (at, init) => fetch(at, init), sleep: () => Promise.resolve() };
    await greet(net, { url, key });
    await expect(greet(net, { url, key: "rs-nobody" })).rejects.toThrow("does not know this key");
    await expect(greet(net, { url: "http://127.0.0.1:1", key })).rejects.toThrow(/cannot be reached.*cors_origins/);
  });
});
