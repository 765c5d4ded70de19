// The dialog of models: who answers, what could be served instead, and what the demo model is said to do.

import assert from "node:assert/strict";

/** Works on the page with the helpers of `run.mjs`. */
export async function models({ page, until, shot, picksOnly }) {
  await page.click("#models-open");
  await page.waitForSelector("#models[open]");
  const known = page.locator("#models-known tbody tr");
  await until("the known models are there", async () => (await known.count()) > 0);
  const name = await page.textContent("#model");
  assert.equal(await page.locator("#models-choice").isVisible(), false, "of one model there is nothing to choose");
  assert.deepEqual(await page.locator("#models-served code").allTextContents(), [name], "the one that is served");
  const first = await known.first().locator("td").allTextContents();
  assert.match(first.join(" | "), /^smollm2-135m-instruct.* \| Apache-2\.0 \| 257 MiB \| 1\.8 GiB \| .* \| relserve serve --model smollm2-135m-instruct$/);
  const isDemo = await picksOnly();
  for (const note of ["#models .beyond", ".status .beyond"]) {
    assert.equal(await page.locator(note).isVisible(), isDemo, `${note}: what the demo model does is said where it answers`);
  }
  await shot("35-models");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("dialog[open]").count(), 0);
  return `models: ${await known.count()} could be served instead of ${name}`;
}
