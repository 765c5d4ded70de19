// A run of many cells: what it will cost is said before it starts. When it is stopped, what is answered stays, and the rest
// is called off on the server at once and can be asked again.

import assert from "node:assert/strict";

const ROWS = 3_000;
/** Answers that come before it is stopped. */
const ANSWERS = 40;

/** Works on the page with the helpers of `run.mjs`. */
export async function stopping({ page, type, importFile, until, asked, holdAnswers, allow, fromServer, shot }, run) {
  const rows = Array.from({ length: ROWS }, (_, i) => `"Parcel ${run}-${i} came ${["early", "late"][i % 2]}"`);
  await importFile("parcels.csv", "text/csv", Buffer.from(rows.join("\n")));
  assert.ok(await page.isHidden("#stop"), "nothing runs, nothing to stop");
  assert.ok(await page.isDisabled("#retry"), "and nothing failed, to be tried again");
  const before = asked().length;
  const release = holdAnswers(ANSWERS);
  const count = (name) => page.locator(`#grid td${name}`).count();
  await type("B1", `=AI.CLASSIFY(A1:A${ROWS}, "good, bad")`);
  await page.waitForSelector("#estimate[open]");
  await until("the costs are there", async () => /at most [\d.]+ s/.test(await page.textContent("#estimate-list")));
  const costs = await page.textContent("#estimate-list");
  assert.equal(await page.textContent("#estimate-title"), "Run 3,000 cells?");
  assert.match(costs, /Prompt tokensabout [\d,]+, of which [\d,]+ are the rows' own.*Answer tokens36,000 at most.*Time if the server is free/);
  await shot("15-estimate");
  await questionWaits({ page, until });
  await page.keyboard.press("Escape");
  await until("nothing waits", async () => (await count(".rs-pending")) === 0);
  assert.ok((await count(".rs-stopped")) > 0, "a no stops them");
  assert.match(await page.textContent("#status"), /Stopped: 0 of 3,000 cells/);
  await until("it is kept", () => page.evaluate(() => document.body.dataset.saved === "yes"));
  await page.reload();
  await until("a no stays a no over a reload", async () => (await count(".rs-stopped")) > 0 && (await count(".rs-pending")) === 0);
  assert.equal(await page.locator("dialog[open]").count(), 0);
  assert.equal(asked().length, before, "and nothing was asked");
  await page.click("#retry");
  await page.waitForSelector("#estimate[open]");
  await page.keyboard.press("Enter");
  /** Answers among the rows that are in the page. */
  const answers = () =>
    page.evaluate(() => {
      const cells = document.querySelectorAll("#grid td.rs-ai:not(.rs-pending):not(.rs-error)");
      return Object.fromEntries(Array.from(cells, (td) => [td.dataset.y, td.textContent]));
    });
  await until("the first answers are there", async () => (await page.textContent("#run-left")).startsWith(`${ANSWERS} of `));
  assert.equal(await page.getAttribute("#run-progress", "max"), String(ROWS));
  const kept = await answers();
  await shot("13-running");

  await page.click("#stop");
  await until("nothing waits", async () => (await count(".rs-pending")) === 0);
  const request = asked()[before];
  await until("the request is dropped", () => request.isCut);
  assert.deepEqual(await answers(), kept, "what was answered stays");
  assert.ok((await count(".rs-stopped")) > 0, "the rest says that it was stopped");
  assert.match(await page.textContent("#status"), /Stopped: 40 of 3,000 cells are answered and stay/);
  assert.ok(await page.isHidden("#stop"));
  await shot("14-stopped");
  await until("the server has nothing more to do", async () => {
    const { rows: all } = await fromServer("v1/scheduler");
    return all.waiting + all.running === 0;
  });
  const { relqueries } = await fromServer("v1/scheduler/trace");
  const computed = relqueries.at(-1).rows.length;
  assert.ok(computed < ROWS, `the server computed ${computed} of ${ROWS} rows`);
  release();
  assert.equal(asked().length, before + 1, "and nothing is asked again by itself");

  await page.click("#retry");
  await allow();
  const rest = (ROWS - ANSWERS).toLocaleString("en");
  await page.waitForFunction((cells) => document.querySelector("#status").value.includes(`${cells} cells in`), rest, { timeout: 120_000 });
  const calls = asked().slice(before + 1).reduce((sum, { body }) => sum + JSON.parse(body).calls.length, 0);
  assert.equal(calls, ROWS - ANSWERS, "what was stopped is asked again, and nothing else");
  assert.deepEqual([await count(".rs-pending"), await count(".rs-stopped")], [0, 0]);
  const all = await answers();
  assert.deepEqual(Object.fromEntries(Object.keys(kept).map((row) => [row, all[row]])), kept);
  return `said what ${ROWS} cells cost (${costs}); stopped after ${ANSWERS} of ${ROWS} answers: they stayed, the server computed ${computed} rows; the rest came when asked again`;
}

/** The question of a page that opens with another view comes with the sheet's. */
async function questionWaits({ page, until }) {
  await until("the sheet is kept", () => page.evaluate(() => document.body.dataset.saved === "yes"));
  await page.evaluate(() => {
    location.hash = "#live";
    location.reload();
  });
  await page.locator("#live > [role=status]:not(:empty)").waitFor();
  await until("the cells wait", async () => (await page.locator("#grid td.rs-pending").count()) > 0);
  await page.click("#view-sheet");
  await page.waitForSelector("#estimate[open]");
}
