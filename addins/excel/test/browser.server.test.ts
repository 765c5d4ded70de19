// The task pane in a browser, served from one address and talking to a server at another, as it does inside Excel:
// preflight, key, streamed answers and what the pane shows. RELSERVE_CORS says that the server's `cors_origins` allow
// it; Debian's Chromium, or the one that CHROMIUM names, is the browser. Office.js is a stand-in: Microsoft's own needs Excel around it.

import { existsSync, readFileSync } from "node:fs";
import { type Server, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";

import { type Browser, type Page, chromium } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { OFFICE } from "./office-page";

const url = process.env.RELSERVE_URL ?? "";
const key = process.env.RELSERVE_KEY ?? "";
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const at = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url));

const TYPES: Record<string, string> = { html: "text/html", js: "text/javascript", css: "text/css" };

describe.skipIf(!url || !process.env.RELSERVE_CORS || !existsSync(CHROMIUM))("the task pane in a browser", () => {
  let files: Server;
  let browser: Browser;
  let page: Page;
  const hosts = new Set<string>();
  const problems: string[] = [];

  beforeAll(async () => {
    files = createServer((request, response) => {
      const name = (request.url ?? "").slice(1);
      response.setHeader("Content-Type", TYPES[name.split(".").pop() ?? ""] ?? "application/octet-stream");
      response.end(existsSync(at(`dist/${name}`)) && name ? readFileSync(at(`dist/${name}`)) : "");
    }).listen(0, "127.0.0.1");
    await new Promise((listening) => files.once("listening", listening));
    browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    page = await browser.newPage({ viewport: { width: 340, height: 720 } });
    page.on("request", (request) => void hosts.add(new URL(request.url()).host));
    page.on("pageerror", (error) => void problems.push(error.message));
    await page.route("https://appsforoffice.microsoft.com/**", (route) => route.fulfill({ contentType: "text/javascript", body: OFFICE }));
    await page.goto(`http://127.0.0.1:${(files.address() as AddressInfo).port}/taskpane.html`);
  });

  afterAll(async () => {
    await browser?.close();
    files?.close();
  });

  async function save(secret: string): Promise<void> {
    await page.fill("#url", url);
    await page.fill("#key", secret);
    await page.press("#key", "Enter");
  }

  /** A column classified; what the formula was shown last. */
  const classify = () =>
    page.evaluate(
      () =>
        new Promise<unknown>((resolve) => {
          type Run = (text: unknown, labels: unknown, kept: null, invocation: { setResult(rows: unknown[][]): void }) => void;
          const run = (window as unknown as { functions: Record<string, Run> }).functions.CLASSIFY;
          run?.([["one is good"], [""], ["two is bad"]], [["good,bad"]], null, {
            setResult: (rows) => {
              const waits = (cell: unknown) => String((cell as { message?: string }).message).includes("waits");
              if (!rows.flat().some(waits)) resolve(rows);
            },
          });
        }),
    );

  test("a formula before any set-up says where to do it; then key, answers and counts", async () => {
    expect(await classify()).toEqual([[expect.objectContaining({ code: "#N/A" })], [""], [expect.objectContaining({ code: "#N/A" })]]);
    await save("rs-nobody");
    await page.getByText("The server does not know this key.").waitFor();
    await save(key);
    await page.getByText(/^Signed in at /).waitFor();
    expect(await page.locator("#model option").count()).toBeGreaterThan(1);
    expect(await classify()).toEqual([[expect.stringMatching(/^(good|bad)$/)], [""], [expect.stringMatching(/^(good|bad)$/)]]);
    await expect.poll(() => page.textContent("#run-line")).toMatch(/^2 cells in /);
    expect(await page.textContent("#run-tokens")).toMatch(/^[1-9]\d* prompt and [1-9]\d* answer tokens/);
  });

  test("a column of answers is estimated, written and asked of the model that was chosen", async () => {
    const rows = Array.from({ length: 1_200 }, (_, i) => [`number ${i} is good`]);
    await page.evaluate((cells) => {
      (window as unknown as { fake: { cells: unknown[][] } }).fake.cells = cells;
    }, [["Text"], ...rows]);
    await page.selectOption("#model", { index: 1 });
    await page.selectOption("#what", "AI.CLASSIFY");
    await page.fill("#inputs input[name=labels]", "good, bad");
    await page.check("input[name=as][value=values]");
    await page.click("#add");
    await page.getByText(/^about [\d,]+, of which/).waitFor();
    expect(await page.locator("#estimate-list dd").allTextContents()).toContain("1,200");
    await page.click("#estimate-run");
    await expect.poll(() => page.textContent("#run-line")).toMatch(/^1,200 cells in [^,]*$/);
    const written = () => page.evaluate(() => (window as unknown as { fake: { cells: unknown[][] } }).fake.cells.map(([, answer]) => answer));
    await expect.poll(async () => (await written()).slice(1).filter((answer) => answer === "good" || answer === "bad").length).toBe(1_200);
    expect((await written())[0]).toBe("classify");
  });

  test("nothing but its own files, Office.js and the server is asked, and nothing goes wrong", () => {
    const own = `127.0.0.1:${(files.address() as AddressInfo).port}`;
    expect(hosts).toEqual(new Set([own, "appsforoffice.microsoft.com", new URL(url).host]));
    expect(problems).toEqual([]);
  });
});
