// What an analyst does with a table: formats, filters, frozen headers, several sheets, charts, find; by mouse and keys, kept
// over a reload and through an XLSX file. Ends with what axe says of the page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { fromFile } from "./menus.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const ROWS = 300;

/** Works on the page with the helpers of `run.mjs`. */
export async function analysing(tools, run) {
  const { page, importFile, until } = tools;
  const rows = Array.from({ length: ROWS }, (_, i) =>
    [`2026-0${1 + (i % 9)}-${String(1 + (i % 28)).padStart(2, "0")}`, ["North", "South", "West"][i % 3], (i * 7.25).toFixed(2), `order ${run}-${i}`].join(","));
  await importFile("sales.csv", "text/csv", Buffer.from(["Day,Region,Amount,Order", ...rows].join("\n")));
  await formats(tools);
  await filters(tools);
  await frozen(tools);
  await sheets(tools);
  await charts(tools);
  await finding(tools);
  // While a chart is there; a file brings none back.
  assert.deepEqual(await violations(page), [], "axe finds nothing, with a chart");
  await tools.shot("12-analyst");
  await page.setViewportSize({ width: 390, height: 760 });
  await tools.shot("13-analyst-phone");
  await page.setViewportSize({ width: 1280, height: 760 });
  await until("all is kept", async () => (await page.getAttribute("body", "data-saved")) === "yes");
  await page.reload();
  await same(tools, "after a reload");
  await throughFile(tools);
  assert.deepEqual(await violations(page), [], "axe finds nothing");
  return "formats, filter, frozen header, sheets, chart and find; kept by a reload and by a file; axe finds nothing";
}

const header = (page, letter) => page.locator(`#grid thead td[data-x="${letter.charCodeAt(0) - 65}"]`);
const tab = (page, name) => page.getByRole("tab", { name, exact: true });
const rowsSeen = (page) => page.locator("#grid tbody:not(.rs-frozen) tr").evaluateAll((all) => all.filter((row) => row.style.display !== "none").map((row) => Number(row.dataset.y) + 1));

async function formats({ page, cell, text, type, until }) {
  await header(page, "C").click();
  await page.selectOption("#format", { label: "Number" });
  assert.equal(await text("C6"), "29.00");
  await page.click("#decimals-more");
  assert.equal(await text("C6"), "29.000");
  await page.keyboard.press("Control+z");
  assert.equal(await text("C6"), "29.00", "a format is undone");
  await header(page, "A").click();
  await page.selectOption("#format", { label: "Date, day first" });
  assert.equal(await text("A2"), "01.01.2026");
  await cell("A2").click();
  assert.equal(await page.inputValue("#formula"), "2026-01-01", "what was typed stays");
  assert.equal(await page.inputValue("#format"), "dd.mm.yyyy");
  await cell("B2").click();
  await page.selectOption("#format", { label: "Custom…" });
  await page.locator("dialog[open] input").fill('@" !"');
  await page.keyboard.press("Enter");
  await until("a format of one's own", async () => (await text("B2")) === "North !");
  await page.keyboard.press("Control+z");
  assert.equal(await text("B2"), "North");
  await type("F2", '=TEXT(A2,"mmmm yyyy")');
  await type("F3", "=A3-A2");
  await type("F4", "=TODAY()");
  assert.deepEqual([await text("F2"), await text("F3")], ["January 2026", "32"]);
  assert.match(await text("F4"), /^\d{4}-\d{2}-\d{2}$/, "today is a date");
}

async function filters({ page, cell, text, type, until }) {
  await cell("B3").click();
  await page.keyboard.press("Control+Shift+L");
  await page.locator("#filter-list").getByLabel("South").uncheck();
  await page.keyboard.press("Enter");
  assert.equal(await page.textContent("#filtered"), "200 of 300 rows");
  assert.deepEqual((await rowsSeen(page)).slice(0, 4), [1, 2, 4, 5], "the header stays, rows of South are gone");
  await cell("B2").click();
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.textContent("#name"), "B4", "keys pass over hidden rows");
  await page.keyboard.press("Control+ArrowDown");
  await until("the end is seen", () => page.evaluate(() => {
    const { bottom } = document.querySelector("#grid .jss_content").getBoundingClientRect();
    const last = document.querySelector('#grid td[data-x="1"][data-y="300"]')?.getBoundingClientRect();
    return last !== undefined && last.top < bottom;
  }));
  await page.keyboard.press("Control+ArrowUp");
  await hiddenStays({ page, cell, text, type });
  await cell("C2").click();
  await page.click("#filter");
  await page.fill("#filter-criterion", ">2000");
  await page.keyboard.press("Enter");
  assert.equal(await page.textContent("#filtered"), "16 of 300 rows");
  assert.deepEqual((await rowsSeen(page)).slice(0, 3), [1, 278, 280]);
  assert.equal(await text("C278"), "2,001.00", "rows keep their numbers");
  await page.keyboard.press("Control+z");
  await page.keyboard.press("Control+z");
  assert.equal(await page.textContent("#filtered"), "", "filters are undone");
  assert.deepEqual((await rowsSeen(page)).slice(0, 4), [1, 2, 3, 4]);
}

/** What is done to a selection is not done to rows that a filter hides in it: row 3 is one. */
async function hiddenStays({ page, cell, text, type }) {
  await type("E2", "down");
  await cell("E2").click();
  await page.keyboard.press("Shift+ArrowDown");
  await page.keyboard.press("Shift+ArrowDown");
  await page.keyboard.press("Control+d");
  assert.deepEqual([await text("E4"), await text("E5")], ["down", "down"]);
  assert.equal(await page.textContent("#selection"), "Count 3", "what is hidden is not counted");
  await page.click("#arrange");
  await page.getByRole("menuitem", { name: "Delete 4 rows" }).click();
  assert.match(await page.textContent("#status"), /^Not done: a filter hides 1 of these rows/);
  assert.match(await text("D5"), /-3$/, "nothing is deleted");
  await cell("B2").click();
  await page.keyboard.press("Control+Shift+L");
  await page.click("#filter-remove");
  assert.equal(await text("E3"), "", "the hidden row was not filled");
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("Control+z");
  assert.deepEqual([await text("E2"), await page.textContent("#filtered")], ["", "200 of 300 rows"], "all of it is undone");
}

/** Where a cell stands, and whether it is what one sees there. */
const placeOf = (page, row, column) =>
  page.evaluate(([y, x]) => {
    const found = document.querySelector(`#grid td[data-x="${x}"][data-y="${y}"]`);
    const { left, top, width, height } = found.getBoundingClientRect();
    return { left, top, isSeen: document.elementFromPoint(left + width / 2, top + height / 2) === found };
  }, [row - 1, column]);

async function frozen({ page, cell, until }) {
  await cell("A1").click();
  await page.click("#freeze");
  await page.getByRole("menuitem", { name: "First row" }).click();
  await page.click("#freeze");
  await page.getByRole("menuitem", { name: "First column" }).click();
  const before = await placeOf(page, 1, 0);
  await page.locator("#grid .jss_content").hover();
  await page.mouse.wheel(0, 3_000);
  await until("other rows are seen", async () => (await page.locator('#grid td[data-x="0"][data-y="110"]').count()) > 0);
  const after = await placeOf(page, 1, 0);
  assert.ok(after.isSeen && Math.abs(after.top - before.top) < 2, "the header stays while rows scroll");
  await page.setViewportSize({ width: 560, height: 760 });
  await page.locator("#grid .jss_content").hover();
  await until("columns scroll", async () => {
    await page.mouse.wheel(100, 0);
    return page.evaluate(() => document.querySelector("#grid .jss_content").scrollLeft > 100);
  });
  const corner = await placeOf(page, 1, 0);
  assert.ok(corner.isSeen && Math.abs(corner.left - before.left) < 2, "and while columns scroll");
  await page.evaluate(() => {
    document.querySelector("#grid .jss_content").scrollLeft = 0;
  });
  await page.setViewportSize({ width: 1280, height: 760 });
  await cell("B100").click();
  for (let i = 0; i < 30; i += 1) await page.keyboard.press("ArrowUp");
  assert.equal(await page.textContent("#name"), "B70");
  assert.ok((await placeOf(page, 70, 1)).isSeen, "no selected cell is under the header");
  await page.keyboard.press("Control+ArrowUp");
}

async function sheets({ page, cell, text, type, until }) {
  await page.click("#add-tab");
  await type("A1", "=SUM(Sheet1!C2:C301)");
  await type("A2", "=COUNTIF(Sheet1!B:B, \"North\")");
  assert.deepEqual([await text("A1"), await text("A2")], [String((7.25 * 299 * 300) / 2), "100"]);
  await tab(page, "Sheet1").click();
  await type("C2", "1000");
  await page.locator('#grid tbody td.jss_row[data-y="4"]').click();
  await page.keyboard.press("Control++");
  await tab(page, "Sheet2").click();
  await cell("A1").click();
  assert.equal(await page.inputValue("#formula"), "=SUM(Sheet1!C2:C302)", "a row put in elsewhere is followed");
  assert.equal(await text("A1"), String((7.25 * 299 * 300) / 2 + 1000));
  await tab(page, "Sheet1").click();
  await page.locator('#grid tbody td.jss_row[data-y="4"]').click();
  await page.keyboard.press("Control+-");
  await page.keyboard.press("Control+z");
  await tab(page, "Sheet2").click();
  await cell("A1").click();
  assert.equal(await page.inputValue("#formula"), "=SUM(Sheet1!C2:C302)", "and so is the undoing of one that went");
  await tab(page, "Sheet1").click();
  await page.locator('#grid tbody td.jss_row[data-y="4"]').click();
  await page.keyboard.press("Control+-");
  await page.keyboard.press("Control+z");
  await page.keyboard.press("Control+y");
  await tab(page, "Sheet2").click();
  await cell("A1").click();
  assert.equal(await page.inputValue("#formula"), "=SUM(Sheet1!C2:C301)", "and its doing again");
  await tab(page, "Sheet2").dblclick();
  await page.locator("dialog[open] input").fill("sheet1");
  await page.keyboard.press("Enter");
  assert.match(await page.textContent("dialog[open] [role=alert]"), /already/);
  await page.locator("dialog[open] input").fill("All in all");
  await page.keyboard.press("Enter");
  await until("it has its new name", async () => (await tab(page, "All in all").count()) === 1);
  await tab(page, "Sheet1").focus();
  await page.keyboard.press("ArrowRight");
  await until("the focus moves", () => tab(page, "All in all").evaluate((one) => one === document.activeElement));
  await tab(page, "Sheet1").click();
  await type("F5", "='All in all'!A2+1");
  assert.equal(await text("F5"), "101");
  await renamed({ page, cell, until });
  await letGo(page);
}

/** A step from before a sheet got its name leads nowhere: it would bring back formulas that read a sheet that is not there. */
async function renamed({ page, cell, until }) {
  await page.locator('#grid tbody td.jss_row[data-y="4"]').click();
  await page.keyboard.press("Control++");
  await tab(page, "Sheet1").dblclick();
  await page.locator("dialog[open] input").fill("Day's sales");
  await page.keyboard.press("Enter");
  await until("it has its new name", async () => (await tab(page, "Day's sales").count()) === 1);
  await page.click("#undo");
  await tab(page, "All in all").click();
  await cell("A1").click();
  assert.equal(await page.inputValue("#formula"), "=SUM('Day''s sales'!C2:C302)");
  await tab(page, "Day's sales").click();
  await page.locator('#grid tbody td.jss_row[data-y="4"]').click();
  await page.keyboard.press("Control+-");
}

/** A sheet that is shown no more leaves nothing of its grid in memory. */
async function letGo(page) {
  const tools = await page.context().newCDPSession(page);
  await tools.send("HeapProfiler.enable");
  const walk = async (times) => {
    for (let i = 0; i < times; i += 1) await tab(page, i % 2 ? "Day's sales" : "All in all").click();
    await tools.send("HeapProfiler.collectGarbage");
    return (await tools.send("Memory.getDOMCounters")).nodes;
  };
  const before = await walk(4);
  const after = await walk(10);
  assert.ok(after < 1.2 * before, `${before} nodes, and ${after} after ten more sheets`);
  await tools.detach();
}

async function charts({ page, cell, until }) {
  await cell("B1").click();
  await page.keyboard.down("Shift");
  for (const key of ["ArrowRight", ...Array(8).fill("ArrowDown")]) await page.keyboard.press(key);
  await page.keyboard.up("Shift");
  await page.click("#chart");
  const chart = page.locator("#charts .chart");
  await until("the chart is drawn", async () => (await chart.getAttribute("data-drawn")) === "yes");
  assert.match(await chart.getAttribute("aria-label"), /Amount by Region: Columns\. Amount\. North 1000, South 7\.25/);
  assert.ok(await painted(page), "something is painted");
  await page.locator("#charts select").selectOption("line");
  await until("it is a line", async () => /Line/.test(await page.locator("#charts .chart").getAttribute("aria-label")));
  await cell("C3").click();
  await page.keyboard.type("77");
  await page.keyboard.press("Enter");
  await until("it follows its cells", async () => /South 77/.test(await page.locator("#charts .chart").getAttribute("aria-label")));
}

/** Whether more than one colour is on the chart's canvas. */
const painted = (page) =>
  page.evaluate(() => {
    const canvas = document.querySelector("#charts canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size > 3;
  });

async function finding({ page, cell, text }) {
  await cell("A1").click();
  await page.keyboard.press("Control+f");
  await page.keyboard.type("-299");
  assert.equal(await page.textContent("#find-count"), "1 of 1");
  assert.equal(await page.textContent("#name"), "D301", "also where no row is in the page");
  assert.match(await text("D301"), /-299$/);
  await page.fill("#find-words", "west");
  assert.match(await page.textContent("#find-count"), /of 100$/);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#find").isVisible(), false);
}

/** What a workbook shows that was made so. */
async function same({ page, text, until }, when) {
  await until(`the sheet is there ${when}`, async () => (await tab(page, "All in all").count()) === 1);
  assert.equal(await text("C6"), "29.00", `formats ${when}`);
  assert.equal(await text("A2"), "01.01.2026", `formats of dates ${when}`);
  assert.equal(await text("F5"), "101", `other sheets ${when}`);
  assert.equal(await page.locator("#grid tbody.rs-frozen tr").count(), 1, `the frozen header ${when}`);
}

async function throughFile(tools) {
  const { page, ARTIFACTS, until } = tools;
  assert.equal(await page.locator("#charts section").count(), 1, "the chart after a reload");
  const [file] = await Promise.all([page.waitForEvent("download"), fromFile(page, "#xlsx")]);
  const path = join(ARTIFACTS, "analyst.xlsx");
  await file.saveAs(path);
  await page.setInputFiles("#file", path);
  await until("the file is opened", async () => (await page.evaluate(() => document.querySelector("#sheets").selectedOptions[0]?.text)) === "analyst");
  await same(tools, "from a file");
  assert.equal(await page.locator("#charts section").count(), 0, "a file has no charts of ours");
}

/** What axe finds against WCAG 2 A and AA. The page's policy lets no script in but by the browser's own tools. */
async function violations(page) {
  await page.evaluate(AXE);
  const { violations: found } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
  return found.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 120)).join(" | ")}`);
}
