// What is seen is what is meant: a filter's hidden rows are not asked again, a number that does not fit its column is no other
// number, what was deleted comes back, a reload shows the sheet that was shown, and a kept value knows where its cells went.

import assert from "node:assert/strict";

import { fromFile } from "./menus.mjs";

const ROWS = 6;

/** Works on the page with the helpers of `run.mjs`. */
export async function showing(tools, run) {
  await filtered(tools, run);
  await narrow(tools);
  await behind(tools, run);
  await deleted(tools);
  return "hidden rows were not asked again, narrow numbers were not cut, a deleted sheet and workbook came back, a reload kept the tab, a kept value followed another sheet's rows";
}

async function filtered({ page, cell, type, importFile, settled, until, asked, shot }, run) {
  const rows = Array.from({ length: ROWS }, (_, i) => `"Tea ${run}-${i}",${i % 2 ? "green" : "black"},`);
  await importFile("teas.csv", "text/csv", Buffer.from(`Tea,Kind,Class\n${rows.join("\n")}\n`));
  await type("C2", `=AI.CLASSIFY(A2:A${ROWS + 1}, "mild, strong")`);
  await settled("C", 2, ROWS + 1);
  await cell("B1").click();
  await page.keyboard.press("Control+Shift+L");
  await page.fill("#filter-criterion", "green");
  await page.keyboard.press("Enter");
  await until("rows are hidden", async () => (await page.locator("#grid tbody tr:visible td[data-x='0']").allTextContents()).filter((text) => text.startsWith("Tea ")).length === ROWS / 2);
  const before = asked().length;
  await cell("C3").click();
  await page.keyboard.press("Shift+ArrowDown");
  await page.keyboard.press("Shift+ArrowDown");
  await page.click("#arrange");
  await page.getByRole("menuitem", { name: "Ask again: selected cells" }).click();
  await until("what is seen is asked", () => asked().length === before + 1);
  const texts = asked().slice(before).flatMap(({ body }) => JSON.parse(body).calls.map(({ args }) => args[0]));
  assert.deepEqual(texts, [1, 3, 5].map((i) => `Tea ${run}-${i}`), "and not what the filter hides between");
  await shot("31-filtered");
}

async function narrow({ page, cell, text, type, until, shot }) {
  await fromFile(page, "#new");
  await type("A1", "123456789");
  await type("A2", "=2/3");
  await type("A3", "1234.5");
  const width = async (pixels) => {
    const { x, y, width: now, height } = await page.locator("#grid thead td[data-x='0']").boundingBox();
    await page.mouse.move(x + now - 2, y + height / 2);
    await page.mouse.down();
    await page.mouse.move(x + pixels - 2, y + height / 2, { steps: 4 });
    await page.mouse.up();
  };
  assert.equal(await text("A1"), "123456789");
  assert.match(await text("A2"), /^0\.66666666*7$/);
  await width(60);
  await until("a whole number is not cut", async () => (await text("A1")) === "####");
  assert.match(await text("A2"), /^0\.6{1,5}7$/, "and one with a fraction is rounded");
  assert.equal(await text("A3"), "1234.5");
  assert.equal(await cell("A1").getAttribute("title"), "123456789");
  await shot("32-narrow");
  await page.keyboard.press("Control+z");
  await until("it is there again", async () => (await text("A1")) === "123456789");
}

/** A value that was kept of a formula which reads another sheet, whose rows move then. */
async function behind({ page, cell, text, type, settled, until }, run) {
  const tab = (name) => page.getByRole("tab", { name, exact: true }).click();
  const choose = async (at, item) => {
    await cell(at).click({ button: "right" });
    await page.getByRole("menuitem", { name: item }).click();
  };
  await fromFile(page, "#new");
  await type("A1", `Cup ${run} is red`);
  await page.click("#add-tab");
  await type("A1", '=AI.CLASSIFY(Sheet1!A1, "warm, cold")');
  await settled("A", 1, 1);
  await choose("A1", "Keep as values");
  await tab("Sheet1");
  await choose("A1", "Insert row above");
  await type("A2", `Cup ${run} is blue`);
  await tab("Sheet2");
  await choose("A1", "Ask again: what changed");
  await until("it is asked again", async () => /^1 value that stood on changed cells is asked again/.test(await page.textContent("#status")));
  await cell("A1").click();
  assert.equal(await page.inputValue("#formula"), '=AI.CLASSIFY(Sheet1!A2, "warm, cold")', "what it reads has moved");
  await settled("A", 1, 1);
  assert.match(await text("A1"), /^(warm|cold)$/);
}

async function deleted({ page, text, type, until, shot }) {
  const name = () => page.locator("#sheets").evaluate((list) => list.selectedOptions[0].text);
  const names = () => page.locator("#sheets option").allTextContents();
  const tabs = () => page.locator("#tabs [role=tab]").allTextContents();
  const confirm = () => page.click("dialog[open] .main");
  await fromFile(page, "#new");
  await page.click("#add-tab");
  await type("A1", "behind");
  await page.getByRole("tab", { name: "Sheet1", exact: true }).click();
  await type("B1", "=Sheet2!A1&1");
  assert.equal(await text("B1"), "behind1");
  await page.getByRole("tab", { name: "Sheet2", exact: true }).click();
  await until("it is kept", () => page.evaluate(() => document.body.dataset.saved === "yes"));
  await page.reload();
  await until("the sheet that was shown is shown", async () => (await text("A1").catch(() => "")) === "behind");

  await page.getByRole("tab", { name: "Sheet2", exact: true }).focus();
  await page.keyboard.press("Delete");
  await confirm();
  await until("it is gone", async () => (await tabs()).length === 1);
  assert.equal(await text("B1"), "#REF!");
  assert.match(await page.textContent("#status"), /^Deleted the sheet "Sheet2"\.$/);
  await shot("33-deleted");
  await page.click("#undelete");
  await until("it is back", async () => (await tabs()).length === 2 && (await text("A1")) === "behind");
  await page.getByRole("tab", { name: "Sheet1", exact: true }).click();
  await until("and what read it reads it", async () => (await text("B1")) === "behind1");
  assert.equal(await page.locator("#undelete:visible").count(), 0);

  const workbook = await name();
  await fromFile(page, "#delete");
  await confirm();
  await until("the workbook is gone", async () => !(await names()).includes(workbook));
  await page.click("#undelete");
  await until("and back", async () => (await name()) === workbook && (await text("B1")) === "behind1");
  // Something else was said since: there is nothing to take back.
  await fromFile(page, "#delete");
  await confirm();
  await page.locator("#undelete").waitFor({ state: "visible" });
  await type("A1", "typed");
  await page.locator("#undelete").waitFor({ state: "hidden" });
}
