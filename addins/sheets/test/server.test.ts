// The built Sheets project against a running server: RELSERVE_URL and RELSERVE_KEY name it.

import { afterAll, describe, expect, test } from "vitest";

import { load, urlFetchApp } from "./google";

const url = process.env.RELSERVE_URL ?? "";
const key = process.env.RELSERVE_KEY ?? "";
const LABELS = ["good", "bad"];

describe.skipIf(!url)("against a running server", () => {
  const http = urlFetchApp();
  afterAll(() => http.stop());

  function project(settings: { url?: string; key?: string } = {}) {
    const made = load({ UrlFetchApp: http });
    made.properties.setProperty("relserve.url", settings.url ?? url);
    made.properties.setProperty("relserve.key", settings.key ?? key);
    made.properties.setProperty("relserve.formulas", "yes");
    http.asked.length = 0;
    return made;
  }
  const call = (name: string, ...args: unknown[]) => (project()[name] as (...all: unknown[]) => unknown)(...args);

  test("a range of 1,000 cells is one request, and its answers have its shape", () => {
    const rows = Array.from({ length: 1_000 }, (_, i) => [`review ${i} is ${LABELS[i % 2]}`]);
    const made = project();
    const shown = made.AI_CLASSIFY?.(rows, "good,bad") as string[][];
    expect(http.asked).toHaveLength(1);
    expect(shown).toHaveLength(1_000);
    expect(shown.every((row) => row.length === 1 && LABELS.includes(row[0] ?? ""))).toBe(true);
    expect(made.AI_CLASSIFY?.(rows.slice(0, 50), [["good"], ["bad"]])).toEqual(shown.slice(0, 50));
  });

  test("every function of the catalogue is there and is answered", () => {
    const text = "Anna wrote on 2026-01-02 that the soup was good";
    expect(call("AI_ASK", "Is it good?", [["soup", "good"]])).toEqual(expect.any(String));
    expect(LABELS).toContain(call("AI_CLASSIFY", text, "good,bad"));
    for (const [name, ...rest] of [
      ["AI_EXTRACT", "the name"], ["AI_SUMMARIZE"], ["AI_TRANSLATE", "French"], ["AI_TAG", "food,travel"],
      ["AI_FORMAT", "upper case"], ["AI_EDIT", "make it short"],
    ] as const) {
      expect(call(name, text, ...rest), name).toEqual(expect.any(String));
    }
    expect(call("AI_FILL", [["1", "one"], ["2", "two"]], "3")).toEqual(expect.any(String));
    expect(call("AI_LIST", "colours: red", 2)).toEqual(expect.arrayContaining([[expect.any(String)]]));
    expect([1, 2, 3, 4, 5]).toContain(call("AI_RATE", "worth a 4"));
  });

  test("one cell that makes no sense does not disturb its neighbours", () => {
    const shown = call("AI_RATE", [["worth a 4"], ["worth a 3"]], "how good", [[1], [5]], [[5], [1]]) as unknown[][];
    expect(shown[0]).toEqual([expect.any(Number)]);
    expect(shown[1]).toEqual([expect.stringMatching(/^#VALUE! rate: argument `high` must be above `low`/)]);
  });

  test("a bad label list and a key that nobody knows are errors with the server's words", () => {
    expect(() => call("AI_CLASSIFY", "x", "a,A")).toThrow(/^#VALUE! classify: argument `labels` has `A` twice/);
    expect(() => project({ key: "rs-nobody" }).AI_CLASSIFY?.("x", "a,b")).toThrow("#N/A unknown or revoked API key");
  });

  test("a server that is not there is a text, not a hang", () => {
    expect(() => project({ url: "http://127.0.0.1:1" }).AI_RATE?.([["a"], ["b"]])).toThrow(
      "#N/A the server at http://127.0.0.1:1 cannot be reached",
    );
  });

  test("the panel keeps a key only where the server takes it", () => {
    const made = load({ UrlFetchApp: http });
    expect(() => made.relserveSignIn?.("http://example.org", key)).toThrow("https://");
    expect(() => made.relserveSignIn?.(url, "rs-nobody")).toThrow("does not know this key");
    expect(made.relserveSettings?.()).toMatchObject({ url: "", hasKey: false });
    made.relserveSignIn?.(url, key);
    expect(made.relserveSettings?.()).toMatchObject({ url, hasKey: true, formulas: false });
    const models = made.relserveRelay?.("GET", "/v1/models", "") as { status: number; text: string };
    expect(models).toMatchObject({ status: 200, text: expect.stringContaining('"id"') as string });
  });
});
