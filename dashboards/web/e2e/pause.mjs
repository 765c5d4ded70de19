// A run that is paused: what is answered stays, the server has nothing of it to do, and nothing goes out until it goes on.

import assert from "node:assert/strict";

import { looks } from "./looks.mjs";

const ROWS = 900;
/** Answers that come before the pause. */
const ANSWERS = 30;

/** Works on the page with the helpers of `run.mjs`. */
export async function pausing(tools, run) {
  const { page, type, importFile, until, asked, holdAnswers, fromServer } = tools;
  const rows = Array.from({ length: ROWS }, (_, i) => `"Train ${run}-${i} came ${["early", "late"][i % 2]}"`);
  await importFile("trains.csv", "text/csv", Buffer.from(rows.join("\n")));
  assert.ok(await page.isHidden("#pause"), "nothing runs, nothing to pause");
  const before = asked().length;
  const release = holdAnswers(ANSWERS);
  await type("B1", `=AI.CLASSIFY(A1:A${ROWS}, "good, bad")`);
  await until("the first answers are there", async () => (await page.textContent("#run-left")).startsWith(`${ANSWERS} of ${ROWS} cells`));
  await page.focus("#pause");
  await page.keyboard.press("Enter");
  await until("the request is dropped", () => asked()[before].isCut);
  assert.equal(await page.textContent("#pause"), "Resume");
  assert.match(await page.textContent("#status"), /^(900 rows read from trains\.csv\. )?Paused\.$/);
  assert.equal(await page.textContent("#run-left"), `${ANSWERS} done, ${ROWS - ANSWERS} wait`);
  assert.equal(await page.evaluate(() => document.activeElement.id), "pause", "the button keeps the keys");
  await looks(tools, "24-paused", "footer.status");
  await until("the server has nothing more to do", async () => {
    const { rows: all } = await fromServer("v1/scheduler");
    return all.waiting + all.running === 0;
  });
  release();
  // Other cells wait as well.
  await type("D1", "=AI.RATE(A1)");
  assert.equal(await page.locator('#grid td[data-x="3"][data-y="0"]').textContent(), "…");
  assert.equal(asked().length, before + 1, "nothing goes out");
  await page.click("#pause");
  await page.waitForFunction(() => /^[\d,]+ cells in/.test(document.querySelector("#status").value), undefined, { timeout: 120_000 });
  const calls = asked().slice(before + 1).flatMap(({ body }) => JSON.parse(body).calls);
  assert.equal(calls.length, ROWS - ANSWERS + 1, "the rest and the new cell, and nothing that was answered");
  await until("nothing waits", async () => (await page.locator("#grid td.rs-pending").count()) === 0);
  assert.ok(await page.isHidden("#pause"));
  return `paused after ${ANSWERS} of ${ROWS} answers by key, resumed by mouse: ${calls.length} calls were asked then`;
}
