// Two models behind one server: the workbook asks the one that is chosen for it, a formula the one that it names, and the
// live view shows the queue of each.
//   RELSERVE_KEY=rs-... node e2e/two-models.mjs http://127.0.0.1:8080

import assert from "node:assert/strict";

import { chromium } from "playwright-core";

import { BROWSER, FLAGS, VIEWPORT, cellSelector, conclude, until, watch } from "./harness.mjs";

const address = process.argv[2] ?? "http://127.0.0.1:8080";
const problems = [];
const browser = await chromium.launch({ executablePath: BROWSER, args: FLAGS });
const context = await browser.newContext({ viewport: VIEWPORT });
const page = await context.newPage();
// Without a key the first look at the models is refused, and a model that is not served is a 404.
watch(page, address, problems, (message) => /status of (401|404)/.test(message.text()));
/** Requests for cells, by their model, with the texts that they ask about; and what the live view asks. */
const asked = [];
const looked = [];
page.on("request", (request) => {
  const path = request.url().slice(address.length);
  if (path.startsWith("/v1/scheduler/events")) looked.push(path);
  if (!path.startsWith("/v1/cells?")) return;
  const { model, calls } = request.postDataJSON();
  asked.push(`${model ?? "-"}: ${calls.map(({ args }) => args[0]).join(" ")}`);
});

const cell = (name) => page.locator(cellSelector(name));
async function type(name, text) {
  await cell(name).click();
  await page.fill("#formula", text);
  await page.press("#formula", "Enter");
}
const answers = (...names) => Promise.all(names.map((name) => cell(name).textContent()));
const settled = (what, ...names) =>
  until(what, async () => (await answers(...names)).every((answer) => answer === "good" || answer === "bad"));

async function run() {
  await page.goto(address);
  await page.waitForSelector("#login[open]");
  await page.fill("#login-key", process.env.RELSERVE_KEY ?? "");
  await page.keyboard.press("Enter");
  await until("the default model is shown", async () => (await page.textContent("#model")) === "first");
  await page.click("#gallery-close");
  await type("A1", "Lovely");
  await type("A2", "Awful");
  await type("B1", '=AI.CLASSIFY(A1:A2, "good, bad")');
  await settled("the default model answers", "B1", "B2");
  await type("C1", '=AI.MODEL("second", AI.CLASSIFY(A1:A2, "good, bad"))');
  await settled("the one that a formula names answers", "C1", "C2");
  assert.deepEqual(asked, ["-: Lovely Awful", "second: Lovely Awful"]);

  await page.click("#models-open");
  await page.selectOption("#models-choice", "second");
  await page.keyboard.press("Escape");
  assert.equal(await page.textContent("#model"), "second");
  await settled("what it said is known", "B1", "B2");
  assert.equal(asked.length, 2, "nothing is asked twice");
  await type("A3", "Splendid");
  await type("D3", '=AI.CLASSIFY(A3, "good, bad")');
  await settled("the workbook's model answers", "D3");
  assert.equal(asked.at(-1), "second: Splendid");
  await type("E1", '=AI.MODEL("third", AI.CLASSIFY(A1, "good, bad"))');
  await until("an unknown model is an error", async () => (await page.locator(`${cellSelector("E1")}.rs-error`).count()) === 1);
  await cell("E1").click();
  await until("which names those that are served", async () => /served: `first`, `second`/.test(await page.textContent("#note")));
  await page.waitForSelector('body[data-saved="yes"]');

  await page.click("#view-live");
  await page.waitForSelector("#live-model");
  await page.selectOption("#live-model", "second");
  await page.click("#lanes-table summary");
  await page.locator('#live table[aria-label="relQueries over time"] tbody tr', { hasText: "=AI.MODEL(" }).first().waitFor({ state: "attached" });
  assert.equal(looked.at(-1), "/v1/scheduler/events?model=second");
  await page.click("#view-sheet");
  await page.reload();
  await until("the choice is kept", async () => (await page.textContent("#model")) === "second");
  await settled("and the answers", "B1", "C1", "D3");
}

await conclude("two models", problems, run, () => browser.close());
