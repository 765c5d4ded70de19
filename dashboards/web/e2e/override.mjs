// Answers of an AI column that somebody types over, by keys: the typed value stands and is marked, the others stay.

import assert from "node:assert/strict";

/** Works on the page with the helpers of `run.mjs`. */
export async function overriding({ page, cell, text, type, importFile, settled, until, asked, request, shot }, run) {
  const rows = Array.from({ length: 10 }, (_, i) => `"Note ${run}-${i} is ${i % 2 ? "kind" : "rude"}"`);
  await importFile("notes.csv", "text/csv", Buffer.from(`Note,Class\n${rows.map((row) => `${row},`).join("\n")}\n`));
  const FORMULA = '=AI.CLASSIFY(A2:A11, "kind, rude")';
  const before = asked().length;
  await type("B2", FORMULA);
  await request(before + 1);
  const answers = await settled("B", 2, 11);
  assert.ok(answers.every((answer) => ["kind", "rude"].includes(answer)), `answers: ${answers}`);
  const column = () => settled("B", 2, 11);
  const formula = async (name) => {
    await cell(name).click();
    return page.inputValue("#formula");
  };
  const edited = () =>
    page.evaluate(() => Array.from(document.querySelectorAll("#grid td.rs-edited"), (td) => `B${Number(td.dataset.y) + 1}`));
  const write = async (name, keys) => {
    await cell(name).click();
    await page.keyboard.type(keys);
    await page.keyboard.press("Enter");
  };

  await write("B6", "neither");
  const first = answers.with(4, "neither");
  assert.deepEqual(await column(), first, "one answer is typed over, the others stay");
  assert.deepEqual(await edited(), ["B6"]);
  assert.match(await cell("B6").getAttribute("aria-label"), /neither, edited/);
  assert.equal(await formula("B2"), FORMULA);

  await write("B2", "mine");
  assert.deepEqual(await column(), first.with(0, "mine"), "also the one in the formula's own cell");
  assert.deepEqual(await edited(), ["B2", "B6"]);
  assert.equal(await formula("B2"), `=OVERRIDE("mine", ${FORMULA.slice(1)})`);
  await cell("B6").click();
  await shot("12-edited");
  await page.keyboard.press("Control+z");
  assert.deepEqual(await column(), first, "one step back");
  await page.keyboard.press("Control+y");
  assert.deepEqual(await column(), first.with(0, "mine"), "and again");

  await cell("B2").click();
  await page.keyboard.press("Delete");
  assert.equal(await formula("B2"), FORMULA, "Delete brings the answer back, not an empty column");
  await cell("B6").click();
  await page.keyboard.press("Delete");
  assert.deepEqual(await column(), answers);
  assert.deepEqual(await edited(), []);

  // A paste over three of them, and a reload.
  await write("D1", "a");
  await write("D2", "b");
  await cell("D1").click();
  await page.keyboard.press("Shift+ArrowDown");
  await page.keyboard.press("Control+c");
  await cell("B2").click();
  await page.keyboard.press("Control+v");
  const pasted = answers.with(0, "a").with(1, "b");
  await until("a paste stands", async () => JSON.stringify(await column()) === JSON.stringify(pasted));
  await until("the sheet is saved", () => page.evaluate(() => document.body.dataset.saved === "yes"));
  await page.reload();
  await until("it is there again", async () => JSON.stringify(await column()) === JSON.stringify(pasted));
  assert.deepEqual(await edited(), ["B2", "B3"]);
  assert.equal(await text("A11"), rows[9].slice(1, -1));

  await cell("B7").click();
  await page.click("#arrange");
  await page.getByRole("menuitem", { name: "Keep as values" }).click();
  assert.deepEqual([await column(), await edited(), await formula("B2"), await formula("B9")], [pasted, [], "a", pasted[7]]);
  await page.keyboard.press("Control+z");
  assert.equal(await formula("B2"), `=OVERRIDE("a", ${FORMULA.slice(1)})`, "undone, they come from the formula again");
  assert.deepEqual([await column(), await edited()], [pasted, ["B2", "B3"]]);
  return "typed over answers by keys and by a paste: they stand, are marked, and the rest stays; Delete brings them back; kept as values and undone";
}
