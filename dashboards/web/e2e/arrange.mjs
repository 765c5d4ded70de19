// Rows and columns that are put in, deleted and sorted, by key, by right click and by button, while cells wait and after.

import assert from "node:assert/strict";

/** Works on the page with the helpers of `run.mjs`. */
export async function arranging({ page, cell, text, type, importFile, settled, until, asked, hold, shot }, run) {
  const items = ["pears", "apples", "figs", "dates", "limes", "plums"].map((name) => `${name} of ${run}`);
  const numbers = [4, 1, 6, 3, 2, 5];
  await importFile("stock.csv", "text/csv", Buffer.from(`Item,Kind,Number\n${items.map((item, i) => `${item},,${numbers[i]}`).join("\n")}\n`));
  const formula = async (name) => {
    await cell(name).click();
    return page.inputValue("#formula");
  };
  const column = (letter, from, to) => Promise.all(Array.from({ length: to - from + 1 }, (_, i) => text(`${letter}${from + i}`)));
  const before = asked().length;
  const release = hold();
  await type("B2", '=AI.CLASSIFY(A2:A7, "sweet, sour")');
  await type("D2", "=C2*10+$C$3");
  await until("the request is sent", () => asked().length === before + 1);

  await page.locator('#grid tbody td.jss_row[data-y="3"]').click();
  await page.keyboard.press("Control++");
  assert.deepEqual(await column("A", 2, 5), [items[0], items[1], "", items[2]]);
  assert.deepEqual(await column("B", 2, 8), ["…", "…", "", "…", "…", "…", "…"], "cells that wait move and wait on");
  assert.equal(await formula("B2"), '=AI.CLASSIFY(A2:A8, "sweet, sour")');
  await cell("B1").click();
  await sortBy(page, "Z to A");
  assert.match(await page.textContent("#status"), /B2 still waits/, "no order out of marks");
  release();
  const kinds = (await settled("B", 2, 8)).filter(Boolean);
  assert.equal(kinds.length, 6);
  assert.equal(asked().length, before + 1, "a row put in asks nothing");
  assert.ok(!asked().at(-1).isCut, "and drops nothing");

  await cell("A4").click({ button: "right" });
  await shot("10-menu");
  await page.getByRole("menuitem", { name: "Delete row" }).click();
  assert.deepEqual(await column("A", 2, 7), items);
  assert.deepEqual(await column("B", 2, 7), kinds, "answers come again out of the page's memory");
  await page.keyboard.press("Control+z");
  assert.equal(await page.textContent("#status"), "Undone.");
  assert.equal(await formula("B2"), '=AI.CLASSIFY(A2:A8, "sweet, sour")', "one step back");
  await page.keyboard.press("Control+y");
  assert.equal(await formula("B2"), '=AI.CLASSIFY(A2:A7, "sweet, sour")', "and again");

  await cell("C1").click();
  await sortBy(page, "A to Z");
  assert.deepEqual(await column("C", 1, 7), ["Number", "1", "2", "3", "4", "5", "6"], "row 1 stays");
  assert.deepEqual(await column("A", 2, 7), [1, 2, 3, 4, 5, 6].map((number) => items[numbers.indexOf(number)]));
  assert.deepEqual(await column("B", 2, 7), [1, 2, 3, 4, 5, 6].map((number) => kinds[numbers.indexOf(number)]));
  assert.equal(await formula("D5"), "=C5*10+$C$3", "its own row moves along");
  await page.keyboard.press("Control+z");
  assert.deepEqual(await column("A", 2, 7), items);

  await cell("B3").click();
  await page.keyboard.press("Control+Space");
  await page.keyboard.press("Control++");
  assert.equal(await formula("E2"), "=D2*10+$D$3");
  assert.deepEqual(await column("C", 2, 7), kinds);
  await cell("D2").click();
  await page.keyboard.press("Control+Space");
  await page.keyboard.press("Control+-");
  assert.equal(await formula("D2"), "=#REF!*10+#REF!");
  assert.equal(await text("D2"), "#REF!");
  await page.keyboard.press("Control+z");
  await page.keyboard.press("Control+z");
  assert.deepEqual(await column("C", 2, 7), numbers.map(String));
  assert.equal(await formula("D2"), "=C2*10+$C$3");
  await cell("B3").click();
  await page.keyboard.press("Shift+Space");
  await page.keyboard.press("Control+-");
  assert.deepEqual(await column("A", 2, 3), [items[0], items[2]]);
  await page.keyboard.press("Control+z");
  assert.equal(asked().length, before + 1, "nothing of all this was asked again");
  return "rows and columns put in, deleted, sorted and undone, one request in all";
}

async function sortBy(page, direction) {
  await page.click("#arrange");
  await page.getByRole("menuitem", { name: direction }).click();
}
