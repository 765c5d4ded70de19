// Which calls a formula makes, and that the functions are those of the server.

import { readFileSync } from "node:fs";
import { answered, keyOf, plan } from "relserve-client/calls";
import { CATALOGUE } from "relserve-client/catalogue";
import { CellError, PENDING, type Value } from "relserve-client/value";
import { failure } from "relserve-client/wire";
import { expect, test } from "vitest";

function of(name: string, ...values: (Value | undefined)[]) {
  const item = CATALOGUE.get(name);
  if (!item) throw new Error(name);
  return plan(item, values);
}

test("the functions are those of the server's catalogue", () => {
  const toml = readFileSync(new URL("../../../ir/catalogue.toml", import.meta.url), "utf8");
  const names = [...toml.matchAll(/^\[(\w+)\]$/gm)].map((found) => found[1]);
  expect([...CATALOGUE.values()].map(({ name }) => name)).toEqual(names);
  for (const item of CATALOGUE.values()) {
    const section = toml.split(`[${item.name}]\n`)[1] ?? "";
    const summary = /summary = "(.*)"/.exec(section)?.[1];
    const args = JSON.parse(/arguments = (\[\[.*\]\])/.exec(section)?.[1] ?? "[]") as [string, string][];
    expect(item.summary).toBe(summary);
    expect(item.arguments.map(({ name, kind, optional }) => [optional ? `${name}?` : name, kind])).toEqual(args);
    expect(item.over).toBeGreaterThanOrEqual(0);
  }
});

test("a range of texts is one call a cell, in its shape; blank cells ask nothing", () => {
  expect(of("AI.CLASSIFY", [["a"], [null], ["b"]], "good,bad")).toEqual({
    isRange: true,
    rows: [
      [{ call: { function: "classify", args: ["a", "good,bad"] } }],
      [{ known: null }],
      [{ call: { function: "classify", args: ["b", "good,bad"] } }],
    ],
  });
});

test("labels and examples take a range as a list, without its blank rows", () => {
  expect(of("AI.CLASSIFY", "a", [["good"], [null], ["bad"]]).rows).toEqual([
    [{ call: { function: "classify", args: ["a", [["good"], ["bad"]]] } }],
  ]);
  expect(of("AI.FILL", [["1", "one"], ["2", "two"]], [["3"], ["4"]]).rows.flat()).toEqual([
    { call: { function: "fill", args: [[["1", "one"], ["2", "two"]], "3"] } },
    { call: { function: "fill", args: [[["1", "one"], ["2", "two"]], "4"] } },
  ]);
});

test("context takes a range as one table", () => {
  expect(of("AI.ASK", "Who?", [["name", "age"], [null, null], ["Ann", 30]])).toEqual({
    isRange: false,
    rows: [[{ call: { function: "ask", args: ["Who?", "name | age\nAnn | 30"] } }]],
  });
});

test("another range must be of the same shape and goes pair by pair", () => {
  expect(of("AI.TRANSLATE", [["a"], ["b"]], [["French"], ["German"]]).rows.flat()).toEqual([
    { call: { function: "translate", args: ["a", "French"] } },
    { call: { function: "translate", args: ["b", "German"] } },
  ]);
  const [item] = of("AI.TRANSLATE", [["a"], ["b"]], [["French", "x"]]).rows.flat();
  expect(item).toEqual({ known: new CellError("#VALUE!", expect.stringContaining("language") as unknown as string) });
});

test("what is left out, wrong or unfinished is known without asking", () => {
  expect(of("AI.CLASSIFY", "a").rows[0]?.[0]).toMatchObject({ known: { code: "#VALUE!", note: expect.stringContaining("labels") } });
  expect(of("AI.SUMMARIZE", "a", "b", "c").rows[0]?.[0]).toMatchObject({ known: { code: "#VALUE!" } });
  expect(of("AI.SUMMARIZE", PENDING).rows[0]?.[0]).toEqual({ known: PENDING });
  expect(of("AI.SUMMARIZE", "a", new CellError("#N/A")).rows[0]?.[0]).toMatchObject({ known: { code: "#N/A" } });
});

test("arguments left out at the end change no key", () => {
  const [a, b] = [of("AI.RATE", "a").rows[0]?.[0], of("AI.RATE", "a", undefined, undefined).rows[0]?.[0]];
  if (!a || !b || !("call" in a) || !("call" in b)) throw new Error("both are calls");
  expect(keyOf(a.call)).toBe(keyOf(b.call));
});

test("a call that makes no sense says why, and not its place within the request", () => {
  const message = "invalid `calls[12].args[1]`: rate: argument `high` must be above `low`";
  const said = "rate: argument `high` must be above `low`";
  expect(failure({ message, type: "invalid_request_error" })).toEqual(new CellError("#VALUE!", said));
  expect(failure({ message: "calls[1] broke", type: "server_error" })).toEqual(new CellError("#N/A", "calls[1] broke"));
});

test("a list spills down", () => {
  expect(answered({ value: ["x", "y"] })).toEqual([["x"], ["y"]]);
});
