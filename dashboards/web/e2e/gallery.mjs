// The empty page: tasks to begin with, by keys and by mouse. One click, and a column fills.

import assert from "node:assert/strict";

import { looks } from "./looks.mjs";
import { fromFile } from "./menus.mjs";

/** Works on the page with the helpers of `run.mjs`. */
export async function beginning(tools) {
  const { page, cell, settled, until, asked } = tools;
  const gallery = page.locator("#gallery");
  await fromFile(page, "#new");
  await gallery.waitFor({ state: "visible" });
  const cards = gallery.locator("button.card");
  assert.ok((await cards.count()) >= 5, "five tasks at least");
  const names = await cards.evaluateAll((all) => all.map((card) => card.textContent));
  assert.equal(new Set(names).size, names.length);
  await looks(tools, "20-gallery", "#gallery");

  // Who wants to type just types, and the offer goes away.
  await cell("A1").click();
  await page.keyboard.type("mine");
  await page.keyboard.press("Enter");
  await gallery.waitFor({ state: "hidden" });
  await page.keyboard.press("Control+z");
  await gallery.waitFor({ state: "visible" });

  // By keys: out of the formula bar, along the cards.
  // What the model that answers does well comes first, so the place of a card depends on it.
  assert.match(names[0], (await tools.picksOnly()) ? /^Support tickets / : /^Invoices /);
  const leads = names.findIndex((name) => /^Leads Score leads/.test(name));
  await page.focus("#gallery-close");
  // Before the tasks that want a larger model, where there are any, stands a button that leads to models.
  const isApart = await gallery.locator(".later").isVisible();
  for (let tabs = 0; tabs <= leads + (isApart ? 1 : 0); tabs += 1) await page.keyboard.press("Tab");
  assert.match(await page.evaluate(() => document.activeElement.textContent), /^Leads Score leads/);
  await page.keyboard.press("Enter");
  await gallery.waitFor({ state: "hidden" });
  assert.equal(await page.locator("#sheets").evaluate((list) => list.selectedOptions[0].text), "Leads");
  const scores = await settled("B", 2, 9);
  assert.ok(scores.every((score) => /^[1-5]$/.test(score)), `scores: ${scores}`);
  const calls = await settled("C", 2, 9);
  assert.ok(calls.every((call) => ["call", "wait"].includes(call)), `calls: ${calls}`);
  assert.equal(await page.evaluate(() => document.activeElement.closest("#grid") !== null), true, "the keys are the grid's");

  // By mouse, and each task opens with a column that fills.
  for (const name of ["Dates", "Invoices"]) {
    const before = asked().length;
    await fromFile(page, "#new");
    await gallery.getByRole("button", { name: new RegExp(`^${name} `) }).click();
    await until(`${name} is open`, async () => (await page.locator("#sheets").evaluate((list) => list.selectedOptions[0].text)) === name);
    await until("its column is asked", () => asked().length > before);
    await settled("B", 2, 6);
    assert.equal(await page.textContent("#name"), "B2");
    assert.match(await page.inputValue("#formula"), /^=AI\./, "the bar shows the formula that fills the column");
  }
  await fromFile(page, "#new");
  await gallery.waitFor({ state: "visible" });
  if (isApart) {
    await gallery.locator(".later button", { hasText: "Models for this machine" }).click();
    await page.locator("#models[open]").waitFor();
    await page.keyboard.press("Escape");
    assert.equal(await gallery.isVisible(), true, "the offer is still there");
  }
  await page.focus("#gallery-close");
  await page.keyboard.press("Escape");
  await gallery.waitFor({ state: "hidden" });
  return `${names.length} tasks on the empty page, reached by keys and by mouse; one of them opened by Enter and filled`;
}
