// The menu over a toy spreadsheet, through the built project's global functions, as Sheets calls them.

import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { FUNCTIONS } from "../../shared/help";
import { load } from "./google";

/** A sheet that writes down what is done to it. */
function spreadsheet(formulas: string[][], values: unknown[][]) {
  const log: string[] = [];
  const said: string[] = [];
  const items: string[] = [];
  const cell = (row: number, column: number) => ({
    clearContent: () => log.push(`clear ${row},${column}`),
    setFormula: (formula: string) => log.push(`formula ${row},${column} ${formula}`),
    setValue: (value: unknown) => log.push(`value ${row},${column} ${String(value)}`),
  });
  const range = { getFormulas: () => formulas, getValues: () => values, getCell: cell };
  const menu = {
    addItem: (_: string, run: string) => {
      items.push(run);
      return menu;
    },
    addSeparator: () => menu,
    addToUi: () => undefined,
  };
  const app = {
    getActiveRange: () => range,
    getActiveSheet: () => ({ getDataRange: () => range }),
    flush: () => log.push("flush"),
    getUi: () => ({ createMenu: () => menu, alert: (text: string) => said.push(text) }),
  };
  const project = load({ UrlFetchApp: {}, SpreadsheetApp: app });
  return { project, log, said, items };
}

test("every entry of the menu is a function that Sheets finds", () => {
  const { project, items } = spreadsheet([], []);
  project.onOpen?.();
  expect(items).toHaveLength(5);
  for (const item of items) expect(typeof project[item]).toBe("function");
  const panel = readFileSync(new URL("../panel/main.ts", import.meta.url), "utf8") + readFileSync(new URL("../panel/net.ts", import.meta.url), "utf8");
  const called = new Set([...panel.matchAll(/"(relserve\w+)"/g)].map(([, name]) => name ?? ""));
  expect(called.size).toBe(10);
  for (const name of called) expect(typeof project[name]).toBe("function");
});

test("every function of the catalogue has the comment that Sheets completes it by", () => {
  const code = readFileSync(new URL("../dist/Code.js", import.meta.url), "utf8");
  for (const item of FUNCTIONS) {
    const upper = item.name.toUpperCase();
    const comment = new RegExp(`/\\*\\*((?:(?!\\*/)[^])*)\\*/\\nfunction AI_${upper}\\(`).exec(code)?.[1] ?? "";
    expect(comment, upper).toContain("@customfunction");
    for (const { name, optional } of item.arguments) expect(comment).toContain(`@param {any} ${optional ? `[${name}]` : name} `);
  }
});

test("answers that were late are fetched by taking their formulas out, and in again", () => {
  const { project, log, said } = spreadsheet([['=AI_ASK("x")', "=A1"], ["=AI_RATE(B2)", ""]], [["#ERROR!", 1], [4, "b"]]);
  project.relserveFetchLate?.();
  expect(log).toEqual(["clear 1,1", "flush", 'formula 1,1 =AI_ASK("x")', "flush"]);
  expect(said).toEqual(["Calculated again: 1."]);
});

test("kept as values and kept in formulas write what they say", () => {
  const grid = [[["=AI_RATE(B1)"], ["=AI_ASK(B2)"]], [[4], ["#PENDING!"]]] as const;
  const values = spreadsheet(...(grid as unknown as [string[][], unknown[][]]));
  values.project.relserveKeepValues?.();
  expect(values.log).toEqual(["value 1,1 4"]);
  expect(values.said).toEqual(["Cells kept as values: 1. Left as they are: 1 (its answer is not there)."]);
  const formulas = spreadsheet(...(grid as unknown as [string[][], unknown[][]]));
  formulas.project.relserveKeepInFormulas?.();
  expect(formulas.log).toEqual(["formula 1,1 =AI_RATE(B1,,,,4)"]);
});
