// The look and the keys of the whole page: every tool and every entry of a menu by keyboard, the phone, and each state in both
// colour schemes, wide and narrow, with what axe says of it.

import assert from "node:assert/strict";

import { looks } from "./looks.mjs";
import { begin, fromFile, press } from "./menus.mjs";

const PHONE = { width: 390, height: 844 };
const WIDE = { width: 1280, height: 760 };
/** Of a phone's height, what the grid has at least. */
const GRID_PART = 0.6;

const active = (page) => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);

/** Presses a key until it leads to where it began; gives all that had the focus. */
async function walked(page, key) {
  const seen = [];
  for (let at = await active(page); !seen.includes(at); at = await active(page)) {
    seen.push(at);
    await page.keyboard.press(key);
  }
  return seen;
}

const shownIn = (page, selector) => page.locator(`${selector} :is(button, select)`).evaluateAll((all) => all.filter((one) => one.checkVisibility() && !one.disabled).map(({ id, textContent }) => id || textContent));

/** Works on the page with the helpers of `run.mjs`. */
export async function looking(tools) {
  const { page, settled } = tools;
  await begin(page, "Leads");
  await settled("B", 2, 9);
  const reached = await byKeys(tools);
  await wideOnPhone(tools);
  const part = await onPhone(tools);
  const states = await everyState(tools);
  return `${reached} tools and entries by keys; the grid has ${Math.round(100 * part)} % of a phone; axe finds nothing in ${states} states, wide and narrow, by day and by night`;
}

/** The row of tools is one stop of Tab; arrow keys reach all of it, and all of each menu. */
async function byKeys({ page, cell, until }) {
  await page.focus("#key");
  await page.keyboard.press("Tab");
  const row = await walked(page, "ArrowRight");
  assert.deepEqual(row.toSorted(), (await shownIn(page, "#toolbar")).toSorted(), "arrow keys reach every tool");
  await page.keyboard.press("End");
  assert.equal(await active(page), "add-column", "the last, where nothing is to be retried");
  await page.keyboard.press("Tab");
  assert.equal(await active(page), "formula", "and Tab leaves the row at once");
  await page.keyboard.press("Shift+Tab");
  assert.equal(await active(page), "add-column", "and comes back to where it was");
  for (const name of row) {
    const { label, title } = await page.evaluate((id) => ({ label: document.getElementById(id).ariaLabel, title: document.getElementById(id).title }), name);
    assert.ok(label && title, `${name} has a name and says what it does`);
  }

  await page.focus("#book-menu");
  await page.keyboard.press("Enter");
  await until("the menu has the keys", async () => (await active(page)) === "new");
  const file = await walked(page, "ArrowDown");
  assert.deepEqual(file, await shownIn(page, "#book-items"), "every entry of the workbook's menu");
  await page.keyboard.press("Escape");
  assert.equal(await active(page), "book-menu");
  let entries = file.length;
  for (const tool of ["freeze", "arrange"]) {
    await page.focus(`#${tool}`);
    await page.keyboard.press("Enter");
    const menu = await walked(page, "ArrowDown");
    assert.deepEqual(menu, await shownIn(page, ".menu:not([popover]):not([hidden])"), `every entry of ${tool}`);
    assert.ok(menu.length >= 5);
    entries += menu.length;
    await page.keyboard.press("Escape");
  }

  // The name, in its place; and a press on a tool leaves the keys where they are.
  await fromFile(page, "#rename");
  await page.keyboard.type("Hot leads");
  await page.keyboard.press("Enter");
  const open = () => page.evaluate(() => document.querySelector("#sheets").selectedOptions[0].text);
  assert.equal(await open(), "Hot leads");
  await page.focus("#title");
  await page.keyboard.type("nothing of this");
  await page.keyboard.press("Escape");
  assert.deepEqual([await open(), await page.inputValue("#title")], ["Hot leads", "Hot leads"]);
  await cell("A3").click();
  await page.click("#decimals-more");
  await page.keyboard.press("Control+z");
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.textContent("#name"), "A4", "the grid kept the keys");
  return row.length + entries;
}

/** Columns that a laptop made wide leave room for the answers on a phone, and are as wide as before on the laptop. */
async function wideOnPhone({ page, cell, until }) {
  const widthOf = async (name) => Math.round((await cell(name).boundingBox()).width);
  const edge = await page.locator('#grid thead td[data-x="0"]').boundingBox();
  await page.mouse.move(edge.x + edge.width - 2, edge.y + 8);
  await page.mouse.down();
  await page.mouse.move(edge.x + 700, edge.y + 8, { steps: 4 });
  await page.mouse.up();
  const wide = await widthOf("A2");
  assert.ok(wide > 600, `A was made wide: ${wide}`);
  await page.setViewportSize(PHONE);
  await until("its answers are seen", async () => {
    const { x, width } = await cell("B2").boundingBox();
    return x + width <= PHONE.width;
  });
  // An edit saves the workbook as this screen has it.
  await cell("A12").click();
  await page.keyboard.type("another");
  await page.keyboard.press("Enter");
  await until("it is saved", () => page.evaluate(() => document.body.dataset.saved === "yes"));
  await page.reload();
  await cell("B2").waitFor();
  const { x, width } = await cell("B2").boundingBox();
  assert.ok(x + width <= PHONE.width, "and after a reload");
  await page.setViewportSize(WIDE);
  await until("the laptop has its width", async () => (await widthOf("A2")) === wide);
}

/** On a phone the data comes first, nothing is wider than the screen, and what left the row is below "More". */
async function onPhone({ page, until }) {
  const before = await shownIn(page, "#toolbar");
  await page.setViewportSize(PHONE);
  await until("tools leave the row", () => page.isVisible("#more"));
  const { part, width, high } = await page.evaluate(() => ({
    part: document.querySelector("#grid").getBoundingClientRect().height / innerHeight,
    width: document.documentElement.scrollWidth, high: document.querySelector("#toolbar").getBoundingClientRect().height,
  }));
  assert.ok(part >= GRID_PART, `the grid has ${part} of the height`);
  assert.equal(width, PHONE.width, "nothing is wider than the screen");
  assert.ok(high < 60, "the tools are one row");
  const row = await shownIn(page, "#toolbar");
  assert.ok(["add-column", "more"].every((id) => row.includes(id)));
  await page.focus("#more");
  await page.keyboard.press("Enter");
  await until("the panel has the keys", () => page.evaluate(() => document.activeElement.closest("#more-tools") !== null));
  const below = await walked(page, "ArrowDown");
  assert.deepEqual([...row.filter((id) => id !== "more"), ...below].toSorted(), before.toSorted(), "no tool is lost");
  await page.keyboard.press("Escape");
  assert.equal(await active(page), "more");
  await press(page, "#find-open");
  assert.equal(await active(page), "find-words", "a tool below works, and what it opens has the keys");
  await page.keyboard.press("Escape");
  await page.setViewportSize(WIDE);
  await until("all are back in their order", async () => (await shownIn(page, "#toolbar")).join() === before.join());
  return part;
}

/** Opens each state, looks at it from all sides, and closes it. */
async function everyState(tools) {
  const { page, cell, until } = tools;
  const escape = () => page.keyboard.press("Escape");
  const states = [
    ["sheet", "body", () => cell("B3").click(), () => undefined],
    ["file-menu", "#book-items", () => page.click("#book-menu"), escape],
    ["arrange-menu", ".menu:not([popover]):not([hidden])", () => page.click("#arrange"), escape],
    ["templates", "#templates", () => fromFile(page, "#templates-open"), escape],
    ["ai-column", "#column", () => page.click("#add-column"), escape],
    ["filter", "#filter-dialog", () => page.click("#filter"), escape],
    ["functions", "#functions", () => page.click("#help"), escape],
    ["share", "#share-dialog", () => page.click("#share"), escape],
    ["usage", "#usage-list", () => page.click("#usage summary"), escape],
    ["key", "#login", () => page.click("#key"), escape],
    ["question", "dialog[open]", () => fromFile(page, "#delete"), escape],
    ["inspector", "#inspector", () => page.click("#inspect"), () => page.click("#inspector-close")],
    ["find", "#find", async () => {
      await page.click("#find-open");
      await page.fill("#find-words", "no such words");
      assert.equal(await page.textContent("#find-count"), "No match");
    }, escape],
    ["chart-of-nothing", "#charts", async () => {
      await cell("E2").click();
      await page.keyboard.press("Shift+ArrowDown");
      await page.click("#chart");
      await page.locator("#charts .empty", { hasText: "Nothing to draw here" }).waitFor();
    }, () => page.keyboard.press("Control+z")],
    ["live", "#live", async () => {
      await page.click("#view-live");
      await until("it is live", async () => (await page.textContent("#live > [role=status]")) === "Live");
      await page.locator("#lanes-in").waitFor();
    }, () => page.click("#view-sheet")],
  ];
  for (const [name, selector, open, close] of states) {
    await open();
    await page.locator(selector).first().waitFor();
    await looks(tools, `30-${name}`, selector);
    await close();
  }
  assert.equal(await page.locator("dialog[open], :popover-open, #usage[open]").count(), 0, "nothing is left open");
  return states.length;
}
