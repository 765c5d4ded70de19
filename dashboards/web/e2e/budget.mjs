// What is left of the day's budget, in the question before many cells; and no cell goes out that surely does not fit.

import assert from "node:assert/strict";

import { looks } from "./looks.mjs";

const CELLS = 1_001;
/** As the page counts tokens of texts. */
const CHARACTERS_PER_TOKEN = 4;

/** Works on the page with the helpers of `run.mjs`. */
export async function budgeting(tools, run) {
  const { page, type, importFile, until, asked, fromServer } = tools;
  const { used, max } = (await fromServer("v1/usage?days=1")).cells_day_tokens;
  const characters = max === null ? 40 : Math.ceil(((max - used) / CELLS) * CHARACTERS_PER_TOKEN) + 40;
  const rows = Array.from({ length: CELLS }, (_, i) => `${run}-${i} ${"x".repeat(characters)}`);
  await importFile("long.csv", "text/csv", Buffer.from(rows.join("\n")));
  const before = asked().length;
  await type("B1", `=AI.RATE(A1:A${CELLS})`);
  await page.waitForSelector("#estimate[open]");
  const costs = () => page.textContent("#estimate-list");
  await until("the budget is there", async () => /Today's budget.*token/.test(await costs()));
  if (max === null) {
    assert.match(await costs(), /Today's budgetno limit; [\d,]+ tokens computed so far/);
  } else {
    assert.match(await costs(), new RegExp(`Today's budget[\\d,]+ of ${max.toLocaleString("en")} tokens left`));
    const refusal = await page.textContent("#estimate-refusal");
    assert.match(refusal, /^Over today's budget by about [1-9][\d,]* tokens\. Run fewer rows/);
    assert.equal(await page.getAttribute("#estimate-refusal", "title"), "limits.tenant_day_cell_tokens_max");
    assert.ok(await page.isDisabled("#estimate-run"), "what surely does not fit cannot be run");
  }
  await looks(tools, "25-budget", "#estimate");
  await page.keyboard.press("Escape");
  await until("nothing waits", async () => (await page.locator("#grid td.rs-pending").count()) === 0);
  assert.equal(asked().length, before, "nothing was asked");
  return max === null ? "this server has no budget, and the question says so" : `${CELLS} cells over a budget of ${max} tokens were refused in words`;
}
