// Excel's pane in a browser, at the width that Excel gives it, over a stand-in of Office.js and a server of the test's own.

import { existsSync, readFileSync } from "node:fs";
import { type Server, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";

import { type Browser, type Page, chromium } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { scenario } from "../../pane/test/scenario";
import { Toy } from "../../pane/test/toy";
import { OFFICE } from "./office-page";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const at = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url));
const TYPES: Record<string, string> = { html: "text/html", js: "text/javascript", css: "text/css" };
/** What the server says of the pane (`gateway/src/routes/addins.rs`). */
const POLICY = "script-src 'self' https://appsforoffice.microsoft.com; object-src 'none'; base-uri 'none'";

interface Fake {
  cells: unknown[][];
  formula: string;
}

describe.skipIf(!existsSync(CHROMIUM))("Excel's pane", () => {
  let files: Server;
  let browser: Browser;
  let page: Page;
  const toy = new Toy();
  const problems: string[] = [];

  beforeAll(async () => {
    await toy.start();
    files = createServer((request, response) => {
      const name = (request.url ?? "").slice(1);
      response.setHeader("Content-Type", TYPES[name.split(".").pop() ?? ""] ?? "application/octet-stream");
      response.setHeader("Content-Security-Policy", POLICY);
      response.end(existsSync(at(`dist/${name}`)) && name ? readFileSync(at(`dist/${name}`)) : "");
    }).listen(0, "127.0.0.1");
    await new Promise((listening) => files.once("listening", listening));
    browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    page = await browser.newPage({ viewport: { width: 330, height: 760 } });
    page.on("pageerror", (error) => void problems.push(error.message));
    await page.route("https://appsforoffice.microsoft.com/**", (route) => route.fulfill({ contentType: "text/javascript", body: OFFICE }));
    await page.goto(`http://127.0.0.1:${(files.address() as AddressInfo).port}/taskpane.html`);
  });

  afterAll(async () => {
    await browser?.close();
    files?.close();
    await toy.stop();
  });

  const fake = () => page.evaluate(() => (window as unknown as { fake: Fake }).fake);
  scenario({
    name: "excel", page: () => page, toy: () => toy, classify: '=AI.CLASSIFY(A2:A7, "LABELS")',
    fill: (cells) => page.evaluate((given) => {
      (window as unknown as { fake: Fake }).fake.cells = given;
    }, cells),
    cells: async () => (await fake()).cells,
    formula: async () => (await fake()).formula,
    called: async () => (await toy.state()).dropped,
  });

  test("nothing went wrong in the page", () => {
    expect(problems).toEqual([]);
  });
});
