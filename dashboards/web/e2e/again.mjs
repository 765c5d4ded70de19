// Answers that are asked for again: of one cell, of a selection, those that failed, and values that were typed or kept and
// stand on cells that have changed since.

import assert from "node:assert/strict";

/** Works on the page with the helpers of `run.mjs`. */
export async function askingAgain({ page, cell, text, type, importFile, settled, until, asked, shot }, run) {
  const rows = Array.from({ length: 6 }, (_, i) => `"Hotel ${run}-${i} was ${i % 2 ? "kind" : "rude"}"`);
  await importFile("hotels.csv", "text/csv", Buffer.from(`Hotel,Class\n${rows.map((row) => `${row},`).join("\n")}\n`));
  const FORMULA = '=AI.CLASSIFY(A2:A7, "kind, rude")';
  await type("B2", FORMULA);
  const answers = await settled("B", 2, 7);
  const menu = async (name, item) => {
    await cell(name).click({ button: "right" });
    await page.getByRole("menuitem", { name: item }).click();
  };
  const status = () => page.textContent("#status");
  const sent = (from) => asked().slice(from).flatMap(({ body }) => JSON.parse(body).calls.map(({ args }) => args[0]));
  const formula = async (name) => {
    await cell(name).click();
    return page.inputValue("#formula");
  };

  let before = asked().length;
  await menu("B4", "Ask again: this cell");
  assert.match(await status(), /Asked the model again: 1 call/);
  await until("one cell is asked", () => asked().length === before + 1);
  assert.equal(JSON.parse(asked()[before].body).cache, false, "past the server's result cache");
  assert.deepEqual(sent(before), [rows[2].slice(1, -1)]);
  assert.deepEqual(await settled("B", 2, 7), answers, "the same model says the same");

  before = asked().length;
  await cell("B3").click();
  await page.keyboard.press("Shift+ArrowDown");
  await page.click("#arrange");
  await page.getByRole("menuitem", { name: "Ask again: selected cells" }).click();
  await until("two cells are asked", () => asked().length === before + 1);
  assert.deepEqual(sent(before), [rows[1], rows[2]].map((row) => row.slice(1, -1)));
  await settled("B", 2, 7);

  before = asked().length;
  await type("C2", '=AI.RATE(A2, "size", 9, 1)');
  await settled("C", 2, 2);
  assert.equal(await text("C2"), "#VALUE!");
  assert.ok(await page.isEnabled("#retry"), "it failed, and can be tried again");
  await menu("A1", "Retry failed");
  await until("what failed is asked once more", () => asked().length === before + 2);
  assert.equal(sent(before).length, 2, "and nothing else");
  await settled("C", 2, 2);
  await cell("C2").click();
  await page.keyboard.press("Delete");

  // One is typed over, the others are kept as values; two of them stand on cells that change then.
  await cell("B5").click();
  await page.keyboard.type("mine");
  await page.keyboard.press("Enter");
  await menu("B3", "Keep as values");
  assert.equal(await formula("B3"), answers[1]);
  before = asked().length;
  await menu("B3", "Ask again: what changed");
  assert.match(await status(), /Nothing is asked: no edited or kept value/);
  await type("A3", `Hotel ${run}-new was kind`);
  await type("A5", `Hotel ${run}-newer was rude`);
  await until("the sheet is saved", () => page.evaluate(() => document.body.dataset.saved === "yes"));
  await page.reload();
  await until("it is there again", async () => (await text("B5")) === "mine");
  await menu("B2", "Ask again: what changed");
  assert.match(await status(), /2 values that stood on changed cells are asked again/);
  const again = await settled("B", 2, 7);
  assert.deepEqual(sent(before), [`Hotel ${run}-new was kind`, `Hotel ${run}-newer was rude`]);
  assert.deepEqual([await formula("B3"), await formula("B5"), await formula("B4")], [
    '=AI.CLASSIFY(A3, "kind, rude")', '=AI.CLASSIFY(A5, "kind, rude")', answers[2],
  ]);
  assert.deepEqual([again[0], again[2], again[4], again[5]], [answers[0], answers[2], answers[4], answers[5]]);
  await shot("23-asked-again");
  await page.keyboard.press("Control+z");
  assert.deepEqual([await text("B3"), await text("B5")], [answers[1], "mine"], "one step back");
  return "asked again for a cell, a selection, what failed, and for two values on changed cells, after a reload";
}
