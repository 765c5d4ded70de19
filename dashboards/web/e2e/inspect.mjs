// All about one cell, by key, by menu and by button: its prompt as it was sent, its tokens and times, why it waited; and a
// cell that failed is tried again from there.

import assert from "node:assert/strict";

import { looks } from "./looks.mjs";

/** Works on the page with the helpers of `run.mjs`. */
export async function inspecting(tools, run) {
  const { page, cell, type, importFile, settled, until, hold, fromServer } = tools;
  const rows = Array.from({ length: 6 }, (_, i) => `"Meal ${run}-${i} was ${i % 2 ? "good" : "cold"}"`);
  await importFile("meals.csv", "text/csv", Buffer.from(`Meal,Class\n${rows.map((row) => `${row},`).join("\n")}\n`));
  const panel = page.locator("#inspector");
  const said = async () => Object.fromEntries(await page.locator("#inspector-list dt").evaluateAll((terms) =>
    terms.map((term) => [term.textContent, term.nextElementSibling.textContent])));
  const title = () => page.textContent("#inspector-title");

  // While it waits.
  const release = hold();
  await type("B2", '=AI.CLASSIFY(A2:A7, "good, bad")');
  await cell("B3").click();
  await page.keyboard.press("Control+i");
  await panel.waitFor({ state: "visible" });
  assert.equal(await page.evaluate(() => document.activeElement.id), "inspector", "the panel has the keys");
  await until("it has gone out", async () => /The server has it|has not been sent/.test((await said())["Why it waits"] ?? ""));
  assert.equal(await page.textContent("#inspector-about"), "Waiting for its answer.");
  release();
  await settled("B", 2, 7);

  // Once it is there.
  await until("the answer is told", async () => (await said())["Answer from"] === "the model");
  const lines = await said();
  assert.equal(await page.locator("#inspector-list dt").first().textContent(), "Formula");
  assert.equal(lines["Formula"], '=AI.CLASSIFY(A2:A7, "good, bad")', "that of the cell that fills it");
  assert.equal(await page.inputValue("#formula"), "", "nothing is typed there");
  assert.equal(await page.getAttribute("#formula", "placeholder"), lines["Formula"]);
  assert.match(lines["Prompt tokens"], /^[1-9]\d*: \d+ computed, \d+ cached$/);
  assert.match(lines["Answer tokens"], /^[1-9]/);
  assert.match(lines["Probability"], /^[<>]? ?[\d.]+ ?%, among all answers that the function allows$/);
  assert.match(lines["Time on the server"], /^waited [\d.]+ m?s, ran [\d.]+ m?s$/);
  assert.match(lines["Why it waited"], /began before it|first of its request/);
  await until("the prompt is there", async () => (await page.locator("#inspector-prompts pre").textContent()).includes(`Meal ${run}-1`));
  const prompt = await page.locator("#inspector-prompts pre").textContent();
  assert.match(prompt, /^Classify the text\. Answer with one of these labels: good, bad\.\n\nText: Meal/);
  const { model } = await fromServer("v1/scheduler");
  const [head] = await page.locator("#inspector-prompts h3").allTextContents();
  assert.ok(head.startsWith(`Prompt as sent to ${model}: ${lines["Prompt tokens"].split(":")[0]} tokens`), head);
  await looks(tools, "21-inspector", "#inspector");

  // It follows the selection, and goes where the keys were.
  await cell("B4").click();
  assert.equal(await title(), "B4");
  await cell("A2").click();
  assert.equal(await page.textContent("#inspector-about"), "No AI formula stands here or fills this cell.");
  assert.equal(await page.locator("#inspector-list dt").count(), 0);
  assert.ok(await page.isHidden("#inspector-again"));
  await page.focus("#inspector-close");
  await page.keyboard.press("Escape");
  await panel.waitFor({ state: "hidden" });
  assert.equal(await page.evaluate(() => document.activeElement.closest("#grid") !== null), true, "the keys are the grid's");
  await page.keyboard.press("ArrowDown");
  assert.match(await page.textContent("#spoken"), /^A3, /);

  // One that was known is told apart; by the menu of a right click.
  await type("D2", '=AI.CLASSIFY(A2:A7, "good, bad")');
  await until("the sheet is saved", () => page.evaluate(() => document.body.dataset.saved === "yes"));
  await page.reload();
  await until("it is there again", async () => ["good", "bad"].includes(await cell("D5").textContent()));
  await cell("D5").click({ button: "right" });
  await page.getByRole("menuitem", { name: "Inspect this cell" }).click();
  await until("its source is told", async () => (await said())["Answer from"]?.startsWith("the server's result cache"));
  assert.equal((await said())["Why it waited"], "It did not: the answer was known.");
  assert.match((await said())["Probability"], /^[<>]? ?[\d.]+ ?%, among all/, "known with the answer");
  await page.click("#inspector-close");

  await failed(tools, run, { panel, said });
  return `inspected a cell that waited, one that ran (${lines["Prompt tokens"]}), one that was known and one that failed`;
}

/** An argument that makes no sense fails on the server, with words, and is not tried again; what broke is, by Retry. */
async function failed(tools, run, { panel }) {
  const { page, cell, type, settled, until, asked, interfere } = tools;
  await type("F2", `=AI.RATE(A2, "taste", 9, 1)`);
  await settled("F", 2, 2);
  await cell("F2").click();
  await page.click("#inspect");
  await panel.waitFor({ state: "visible" });
  assert.match(await page.textContent("#inspector-error"), /^rate: .*must be above `low`/);
  assert.ok(await page.isHidden("#inspector-again"), "to ask the same once more is of no use");
  await until("there is no prompt", async () => (await page.textContent("#inspector-prompts")) === "No prompt is sent");
  assert.equal(await page.locator("#inspector-prompts pre").count(), 0, "and no empty box");
  await looks(tools, "22-inspector-failed", "#inspector");

  const error = { message: "the answer was no number", type: "server_error" };
  const mend = interfere({
    change: (event) => (/^event: cell\n/.test(event) ? `event: cell\ndata: ${JSON.stringify({ index: 0, error })}\n\n` : event),
  });
  await type("G2", `=AI.RATE(A2, "crust of ${run}")`);
  await settled("G", 2, 2);
  mend();
  await cell("G2").click();
  assert.equal(await page.textContent("#inspector-again"), "Retry");
  const before = asked().length;
  await page.focus("#inspector-again");
  await page.keyboard.press("Enter");
  await until("it is asked once more", () => asked().length === before + 1);
  assert.equal(JSON.parse(asked()[before].body).calls.length, 1);
  const [answer] = await settled("G", 2, 2);
  assert.match(answer, /^\d+$/, "it has an answer now");
  await page.click("#inspect");
  await panel.waitFor({ state: "hidden" });
}
