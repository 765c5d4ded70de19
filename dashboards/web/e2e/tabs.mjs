// Two tabs with one sheet: each takes over what the other wrote, and the one that comes second keeps a copy.

import assert from "node:assert/strict";

import { fromFile } from "./menus.mjs";

/** Works on a page and on a second and third one of the same browser. */
export async function tabs({ page, browser, address, watch, cellOf, type, until, shot }) {
  const saved = (tab) => until("the sheet is saved", () => tab.evaluate(() => document.body.dataset.saved === "yes"));
  const name = (tab) => tab.evaluate(() => document.querySelector("#sheets").selectedOptions[0].text);
  const names = (tab) => tab.evaluate(() => Array.from(document.querySelector("#sheets").options, ({ text }) => text).sort());
  const shows = (tab, at, text) => until(`${at} is ${text}`, async () => (await cellOf(tab, at).textContent()) === text);
  const open = async (prepare) => {
    const tab = await browser.newPage();
    watch(tab);
    if (prepare) await tab.addInitScript(prepare);
    await tab.goto(address);
    await until("the tab shows a sheet", () => tab.evaluate(() => document.querySelector("#sheets").selectedOptions.length === 1));
    return tab;
  };
  const rename = async (tab, to) => {
    await fromFile(tab, "#rename");
    await tab.keyboard.type(to);
    await tab.keyboard.press("Enter");
    await tab.waitForSelector("dialog[open]", { state: "detached" });
  };

  await fromFile(page, "#new");
  await type(page, "A1", "one");
  await rename(page, "Shared");
  await saved(page);
  const other = await open();
  assert.equal(await name(other), "Shared", "a new tab opens what was changed last");
  await type(page, "B1", "=UPPER(A1)");
  await shows(other, "B1", "ONE");
  await type(other, "A1", "two");
  await shows(page, "B1", "TWO");
  await rename(other, "Ours");
  await until("a rename is seen", async () => (await name(page)) === "Ours");
  assert.match(await page.textContent("#status"), /Another tab changed this workbook/);
  await shot("34-two-tabs");
  await saved(other);

  // This one does not hear what is written, so that it is surely second.
  const deaf = await open(() => {
    BroadcastChannel.prototype.addEventListener = () => undefined;
  });
  await type(page, "A1", "first");
  await saved(page);
  await type(deaf, "A2", "second");
  await until("the second goes on with a copy", async () => (await name(deaf)) === "Ours (copy)");
  assert.match(await deaf.textContent("#status"), /Another tab changed "Ours" too: what you did here goes on as "Ours \(copy\)"/);
  await saved(deaf);
  assert.deepEqual([await cellOf(deaf, "A1").textContent(), await cellOf(deaf, "A2").textContent()], ["two", "second"]);
  await until("the copy is told", async () => (await names(page)).includes("Ours (copy)"));
  assert.deepEqual([await cellOf(page, "A1").textContent(), await cellOf(page, "A2").textContent()], ["first", ""]);

  await fromFile(page, "#delete");
  await page.keyboard.press("Escape");
  assert.equal(await name(page), "Ours", "Escape deletes nothing");
  await fromFile(page, "#delete");
  await page.click("dialog[open] .main");
  await until("a deletion is seen", async () => !(await names(other)).includes("Ours"));
  assert.match(await other.textContent("#status"), /"Ours" was deleted in another tab/);
  await deaf.reload();
  await shows(deaf, "A2", "second");
  assert.equal(await name(deaf), "Ours (copy)", "a reload comes back to the tab's own sheet");
  await deaf.close();
  await other.close();
  return "two tabs: each took over the other's edits, the one that came second kept a copy";
}
