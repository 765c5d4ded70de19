// What a user does in the pane, in a browser, with real keys and mouse: the same for both sheets.

import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import axe from "axe-core";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { Toy } from "./toy";

/** What differs between the sheets. */
export interface Pane {
  name: string;
  page(): Page;
  toy(): Toy;
  /** Puts cells into the open sheet, and nothing else. */
  fill(cells: unknown[][]): Promise<void>;
  /** What stands in the sheet. */
  cells(): Promise<unknown[][]>;
  /** The formula that was entered last. */
  formula(): Promise<string>;
  /** What a classifying column over A2:A7 is here. */
  classify: string;
  /** How many requests the server has been rid of by Stop. */
  called(): Promise<number>;
}

const artifacts = fileURLToPath(new URL("../../artifacts", import.meta.url));
const reviews = (rows: number) => [["Review", "Stars"], ...Array.from({ length: rows }, (_, i) => [`review ${i + 1}`, (i % 5) + 1])];

/** The tests of a pane. */
export function scenario(pane: Pane): void {
  const page = () => pane.page();
  const line = () => page().textContent("#run-line");
  const column = async (at: number) => (await pane.cells()).slice(1).map((row) => row[at] ?? "");

  /** No violation, in both schemes; with a picture of each. */
  async function looksRight(state: string): Promise<void> {
    mkdirSync(artifacts, { recursive: true });
    for (const colorScheme of ["light", "dark"] as const) {
      await page().emulateMedia({ colorScheme });
      await page().evaluate(axe.source);
      const violations = await page().evaluate(async () => {
        const { violations: found } = await (window as unknown as { axe: typeof axe }).axe.run();
        return found.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html).join(" | ").slice(0, 300)}`);
      });
      expect(violations, `${state}, ${colorScheme}`).toEqual([]);
      const isWide = await page().evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
      expect(isWide, `${state} scrolls sideways`).toBe(false);
      await page().screenshot({ path: `${artifacts}/${pane.name}-${state}-${colorScheme}.png` });
    }
    await page().emulateMedia({ colorScheme: "light" });
  }

  /** A sheet of its own, and a wizard that classifies by other labels than before. */
  let labels = 0;
  async function begin(rows: number, as: "formula" | "values"): Promise<void> {
    await pane.toy().reset();
    await pane.fill(reviews(rows));
    await page().selectOption("#what", "AI.CLASSIFY");
    labels += 1;
    await page().fill("#inputs input[name=labels]", `good, bad, ${labels}`);
    await page().check(`input[name=as][value=${as}]`);
  }

  test("signing in says whether the server takes the key, and lists its models", async () => {
    await page().getByText("Not signed in", { exact: true }).waitFor();
    await looksRight("signed-out");
    await page().fill("#url", pane.toy().url);
    await page().fill("#key", "rs-nobody");
    await page().press("#key", "Enter");
    await page().getByText(/the server does not know this key/i).waitFor();
    await page().fill("#key", Toy.KEY);
    await page().press("#key", "Enter");
    await page().getByText(/^Signed in at 127\.0\.0\.1:\d+ as acme$/).waitFor();
    expect(await page().isVisible("#url")).toBe(false);
    expect(await page().locator("#model option").allTextContents()).toEqual(["The server's own", "large", "small"]);
    expect(await page().content()).not.toContain(Toy.KEY);
  });

  test("five rows are looked at first, by keyboard, and later calls ask the chosen model", async () => {
    await begin(40, "values");
    await page().selectOption("#model", "small");
    await page().focus("#inputs input[name=labels]");
    for (const key of ["Tab", "Tab", "Tab"]) await page().keyboard.press(key);
    expect(await page().evaluate(() => document.activeElement?.id)).toBe("try");
    await page().keyboard.press("Enter");
    await expect.poll(() => page().locator("#preview-rows tr").allTextContents()).toEqual(
      [1, 2, 3, 4, 5].map((i) => `review ${i}about review ${i}`));
    const { asked } = await pane.toy().state();
    expect(asked.map(({ calls, model }) => [calls.length, model])).toEqual([[5, "small"]]);
    expect(await page().textContent("#sheet-line")).toMatch(/: 40 rows, 2 columns$/);
    expect((await pane.cells())[0]).toHaveLength(2);
    await looksRight("preview");
    await page().selectOption("#model", "");
  });

  test("a prompt names its columns by chips, and what makes no column is said", async () => {
    await begin(3, "values");
    await page().selectOption("#what", "AI.ASK");
    await page().fill("#inputs textarea", "Is it good?");
    await page().click("#add");
    await page().getByText("The prompt names no column: write one in braces, such as {Review}.").waitFor();
    await page().fill("#inputs textarea", "Reply to ");
    await page().click("#read");
    await page().getByRole("button", { name: "{Review}" }).click();
    await page().keyboard.type(" of ");
    await page().getByRole("button", { name: "{Stars}" }).click();
    await page().fill("#title", "Reply");
    await page().click("#add");
    await expect.poll(() => column(2)).toEqual([1, 2, 3].map((i) => `about Reply to review ${i} of ${i}`));
    expect((await pane.cells())[0]).toEqual(["Review", "Stars", "Reply"]);
    await page().fill("#title", "");
  });

  test("Stop calls the rest off on the server and keeps what is done; it is asked again on demand", async () => {
    await begin(40, "values");
    await pane.toy().set({ held: 10 });
    await page().click("#add");
    await expect.poll(line).toMatch(/^10 of 40 cells/);
    await expect.poll(() => column(2)).toEqual(Array.from({ length: 40 }, (_, i) => (i < 10 ? `about review ${i + 1}` : "")));
    expect(await page().textContent("#run-tokens")).toMatch(/^\d+ prompt and \d+ answer tokens/);
    await looksRight("running");
    await page().focus("#stop");
    await page().keyboard.press("Enter");
    await expect.poll(line).toBe("Stopped: 10 of 40 cells are answered and stay.");
    expect(await page().evaluate(() => document.activeElement?.id)).toBe("retry");
    await expect.poll(() => pane.called()).toBe(1);
    expect((await column(2)).filter(Boolean)).toHaveLength(10);
    await pane.toy().release();
    await page().keyboard.press("Enter");
    await expect.poll(() => column(2)).toEqual(Array.from({ length: 40 }, (_, i) => `about review ${i + 1}`));
    await expect.poll(line).toMatch(/^30 cells in /);
    const { asked } = await pane.toy().state();
    expect(asked.reduce((sum, { calls }) => sum + calls.length, 0)).toBe(70);
  });

  test("above 1,000 calls their cost is told first; what is over the budget does not go", async () => {
    await begin(1_200, "values");
    await pane.toy().set({ budget: { used: 90, max: 100, setting: "limits.tenant_day_cell_tokens_max" } });
    await page().click("#add");
    await page().getByText(/^Over today's budget: 10 tokens are left \(limits\.tenant_day_cell_tokens_max\)/).waitFor();
    expect(await page().isDisabled("#estimate-run")).toBe(true);
    await looksRight("over-budget");
    await page().keyboard.press("Escape");
    expect(await page().isVisible("#estimate")).toBe(false);
    await pane.toy().set({ budget: { used: 0, max: null, setting: null } });
    await page().click("#add");
    await page().getByText("no limit").waitFor();
    expect(await page().locator("#estimate-list dd").allTextContents()).toContain("1,200");
    await page().click("#estimate-cancel");
    expect((await pane.toy().state()).asked).toEqual([]);
    expect((await pane.cells())[0]).toHaveLength(2);
    await page().click("#add");
    await page().getByText("no limit").waitFor();
    await page().click("#estimate-run");
    await expect.poll(line).toMatch(/^1,200 cells in /);
    await expect.poll(async () => (await column(2)).filter(Boolean).length).toBe(1_200);
  });

  test("a spent budget and a key that was revoked say what to do", async () => {
    await begin(3, "values");
    await pane.toy().set({ refuses: { status: 429, error: { message: "spent", code: "budget_spent" } } });
    await page().click("#add");
    await page().getByText(/^Today's token budget is spent \(limits\.tenant_day_cell_tokens_max\)/).waitFor();
    await expect.poll(line).toMatch(/3 of them without an answer/);
    await pane.toy().set({ refuses: { status: 401, error: { message: "unknown or revoked API key" } } });
    await page().click("#retry");
    await page().getByText(/^The server does not know this key/).waitFor();
    await looksRight("refused");
    await pane.toy().set({ refuses: undefined });
    await page().click("#retry");
    await expect.poll(() => column(2)).toEqual([1, 2, 3].map((i) => `about review ${i}`));
    expect(await page().textContent("#problem")).toBe("");
  });

  test("a server that goes away is waited for, and the run goes on by itself", async () => {
    await begin(20, "values");
    await pane.toy().set({ held: 5 });
    await page().click("#add");
    await expect.poll(line).toMatch(/^5 of 20 cells/);
    await pane.toy().kill();
    await expect.poll(line).toMatch(/^Reconnecting: the server is away\. 5 of 20/);
    await looksRight("reconnecting");
    await pane.toy().release();
    await pane.toy().start();
    await expect.poll(() => column(2)).toEqual(Array.from({ length: 20 }, (_, i) => `about review ${i + 1}`));
    await expect.poll(line).toMatch(/^20 cells in /);
  });

  test("a formula is entered where it is wanted, under its title", async () => {
    await begin(6, "formula");
    if (await page().isVisible("#formulas")) {
      await page().click("#add");
      await page().getByText(/^Formulas may not use your key/).waitFor();
      await page().check("#formulas");
    }
    await page().click("#add");
    await expect.poll(() => pane.formula()).toBe(pane.classify.replace("LABELS", `good, bad, ${labels}`));
    expect((await pane.cells())[0]).toEqual(["Review", "Stars", "classify"]);
  });

  test("who forgets the key is signed out", async () => {
    await page().click("#signed");
    await page().click("#forget");
    await page().getByText("Not signed in", { exact: true }).waitFor();
    await page().click("#try");
    await page().getByText(/no server is set|sign in first/i).first().waitFor();
  });
}
