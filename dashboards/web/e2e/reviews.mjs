// A sheet of reviews from its import to its export: cells that wait, are edited, fill, are undone, reload and come back.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { fromFile } from "./menus.mjs";

const round = (milliseconds) => `${Math.round(milliseconds)} ms`;
const texts = (page) =>
  page.evaluate(() => Array.from(document.querySelectorAll("#grid tbody td"), (td) => td.textContent).slice(0, 300));

/** Works on the page with the helpers of `run.mjs`. */
export async function reviews(tools, run) {
  const { text, importFile, hold } = tools;
  const lines = Array.from({ length: 50 }, (_, i) => `"Item ${run}-${i}: it is ${i % 2 ? "great, I love it" : "bad, it broke"}"`);
  await importFile("reviews.csv", "text/csv", Buffer.from(`Review,Class\n${lines.map((line) => `${line},`).join("\n")}\n`));
  assert.equal(await text("A2"), lines[0].slice(1, -1));
  const release = hold();
  await waits(tools);
  await edits(tools, run, release);
  await undoes(tools, lines, run);
  const ratings = await fillsDown(tools);
  await reloads(tools, ratings);
  await comesBack(tools);
}

/** Cells wait: one request for all, and empty cells in an export. */
async function waits({ page, type, request, shot, step, ARTIFACTS }) {
  await type("B2", '=AI.CLASSIFY(A2:A51, "praise, complaint")');
  await page.waitForFunction(() => document.querySelectorAll("#grid td.rs-pending").length === 50);
  assert.equal(await request(1), 50, "50 cells are one request");
  await shot("2-pending");
  const [part, said] = await Promise.all([page.waitForEvent("download"), fromFile(page, "#csv").then(() => page.textContent("#status"))]);
  await part.saveAs(join(ARTIFACTS, "pending.csv"));
  assert.ok(readFileSync(join(ARTIFACTS, "pending.csv"), "utf8").includes('it broke",\r\n'), "what waits is empty in a file");
  assert.match(said, /50 cells still wait and are empty in the file/);
  step("50 cells wait, one request of 50 calls is under way");
}

/** An edit asks one new call, a deleted cell calls its request off, and the rest fills. */
async function edits({ page, cell, text, type, request, until, asked, settled, shot, step }, run, release) {
  await type("A3", `Item ${run}: nothing like it, a joy`);
  assert.equal(await request(2), 1, "an edit while pending asks the one new call");
  await type("D1", "=AI.RATE(A2)");
  assert.equal(await request(3), 1);
  await cell("D1").click();
  await page.keyboard.press("Delete");
  await until("a deleted cell's request is dropped", () => asked()[2].isCut);
  assert.equal(await text("D1"), "");
  const started = Date.now();
  release();
  const classes = await settled("B", 2, 51);
  assert.equal(classes.length, 50);
  assert.ok(classes.every((label) => label === "praise" || label === "complaint"), `labels: ${[...new Set(classes)]}`);
  await shot("3-filled");
  step(`edited one and cancelled one while pending; filled ${round(Date.now() - started)} after the server was let through`);
}

/** Undo and redo, out of what the page has seen. */
async function undoes({ page, cell, text, type, request, step }, reviews, run) {
  await cell("A3").click();
  // Two steps at once: between them D1 has its formula again, and what stands for 100 ms is asked.
  await page.evaluate(() => [1, 2].forEach(() => document.querySelector("#undo").click()));
  await page.keyboard.press("Control+z");
  assert.equal(await text("A3"), reviews[1].slice(1, -1), "undo brings the text back");
  assert.ok(["praise", "complaint"].includes(await text("B3")), "a seen cell is filled at once");
  await page.keyboard.press("Control+y");
  assert.equal(await text("A3"), `Item ${run}: nothing like it, a joy`, "redo");
  await page.keyboard.press("Control+z");
  await type("C2", "=AI.RATE($A2)");
  assert.equal(await request(4), 1, "undo and redo asked nothing");
  step("undo and redo, answered from the page's memory");
}

/** A formula filled down by key, and an error in the words of the server. Gives the ratings. */
async function fillsDown({ page, cell, text, type, settled, step }) {
  await cell("C2").click();
  await cell("C51").scrollIntoViewIfNeeded();
  await cell("C51").click({ modifiers: ["Shift"] });
  await page.keyboard.press("Control+d");
  const ratings = await settled("C", 2, 51);
  assert.ok(ratings.every((rating) => /^[1-5]$/.test(rating)), `ratings: ${ratings}`);
  await cell("C51").click();
  assert.equal(await page.inputValue("#formula"), "=AI.RATE($A51)");
  await type("E1", '=AI.RATE(A2, "length", 9, 1)');
  await settled("E", 1, 1);
  assert.equal(await text("E1"), "#VALUE!");
  assert.match(await cell("E1").getAttribute("title"), /must be above/);
  step("filled 50 formulas down by key; an error has the server's words");
  return ratings;
}

/** The sheet as it was, after a reload. */
async function reloads({ page, until, settled, promptTokens, step }, ratings) {
  await until("the sheet is saved", () => page.evaluate(() => document.body.dataset.saved === "yes"));
  const computed = await promptTokens();
  const reloaded = Date.now();
  await page.reload();
  await page.waitForFunction(
    () => document.querySelectorAll("#grid td.rs-ai").length >= 100 && !document.querySelector("#grid td.rs-pending"),
  );
  const took = Date.now() - reloaded;
  assert.deepEqual(await settled("C", 2, 51), ratings);
  assert.equal(await promptTokens(), computed, "the model had nothing to do");
  step(`reload: page, login and 100 cells from the server's cache in ${round(took)}`);
}

/** The sheet as it was, out of its own export. */
async function comesBack({ page, cell, importFile, settled, step, ARTIFACTS }) {
  const [file] = await Promise.all([page.waitForEvent("download"), fromFile(page, "#xlsx")]);
  const path = join(ARTIFACTS, "reviews.xlsx");
  await file.saveAs(path);
  const shown = await texts(page);
  await importFile("again.xlsx", "application/octet-stream", readFileSync(path));
  await settled("B", 2, 51);
  const again = await texts(page);
  assert.deepEqual(again, shown, "an exported sheet comes back as it was");
  await cell("B2").click();
  assert.equal(await page.inputValue("#formula"), '=AI.CLASSIFY(A2:A51, "praise, complaint")');
  step("exported XLSX and read it back, formulas and all");
}
