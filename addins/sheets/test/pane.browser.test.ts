// The sidebar of Google Sheets in a browser, at the width that Google gives it, over the built project and a server of the
// test's own. `google.script.run` is a stand-in that calls the project as Apps Script would.

import { existsSync } from "node:fs";

import { type Browser, type Page, chromium } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { scenario } from "../../pane/test/scenario";
import { Toy } from "../../pane/test/toy";
import { loadShared, urlFetchApp } from "./google";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** What Google puts into the sidebar: every call of a function goes to the script, and its result or error comes back. */
const GOOGLE = `
  const runner = (then, fail) => new Proxy({}, {
    get: (_, name) => {
      if (name === "withSuccessHandler") return (handler) => runner(handler, fail);
      if (name === "withFailureHandler") return (handler) => runner(then, handler);
      return (...args) => void scriptRun(name, args).then(({ value, error }) => (error === undefined ? then(value) : fail(new Error(error))));
    },
  });
  window.google = { script: { run: runner(() => {}, () => {}) } };
`;

/** A spreadsheet of one sheet, as far as the panel uses it. */
function spreadsheet() {
  const state = { cells: [] as unknown[][], formula: "", page: "" };
  const kept = (value: unknown) => (typeof value === "string" ? value.replace(/^'/, "") : value);
  const sheet = {
    getSheetId: () => 7, getName: () => "Sheet1", getLastRow: () => state.cells.length, getMaxColumns: () => 26,
    insertColumnAfter: () => undefined,
    getDataRange: () => ({ getValues: () => state.cells }),
    getRange: (row: number, column: number) => ({
      setValues: (values: unknown[][]) => values.forEach(([value], i) => {
        (state.cells[row - 1 + i] ??= [])[column - 1] = kept(value);
      }),
      setFormula: (formula: string) => {
        state.formula = formula;
      },
    }),
  };
  const app = {
    getActive: () => ({ getActiveSheet: () => sheet, getSheets: () => [sheet], getSpreadsheetTimeZone: () => "Etc/UTC" }),
    getUi: () => ({
      showSidebar: ({ page }: { page: string }) => {
        state.page = page;
      },
    }),
  };
  return { state, app };
}

describe.skipIf(!existsSync(CHROMIUM))("the sidebar of Sheets", () => {
  let browser: Browser;
  let page: Page;
  const toy = new Toy();
  const http = urlFetchApp();
  const { state, app } = spreadsheet();
  const problems: string[] = [];

  beforeAll(async () => {
    await toy.start();
    const script = loadShared({ UrlFetchApp: http, SpreadsheetApp: app }).as("editor");
    script.relservePanel?.();
    browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    page = await browser.newPage({ viewport: { width: 300, height: 760 } });
    page.on("pageerror", (error) => void problems.push(error.message));
    await page.exposeFunction("scriptRun", (name: string, args: unknown[]) => {
      try {
        // What comes out of another context does not travel to a page as it is.
        return { value: JSON.parse(JSON.stringify(script[name]?.(...args) ?? null)) as unknown };
      } catch (error) {
        return { error: (error as Error).message };
      }
    });
    await page.addInitScript(GOOGLE);
    await page.route("https://sidebar.example/", (route) => route.fulfill({ contentType: "text/html", body: state.page }));
    await page.goto("https://sidebar.example/");
  });

  afterAll(async () => {
    await browser?.close();
    await http.stop();
    await toy.stop();
  });

  scenario({
    name: "sheets", page: () => page, toy: () => toy, classify: '=AI_CLASSIFY(A2:A7; "LABELS")',
    fill: async (cells) => {
      state.cells = cells;
    },
    cells: async () => state.cells,
    formula: async () => state.formula,
    called: async () => (await toy.state()).cancelled,
  });

  test("nothing went wrong in the page", () => {
    expect(problems).toEqual([]);
  });
});
