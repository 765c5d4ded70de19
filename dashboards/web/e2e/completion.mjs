// The list of functions that fit while a formula is typed: by keys and by the mouse, in a cell and in the bar.

import assert from "node:assert/strict";

import { accessible } from "./axe.mjs";

/** Works on the page with the helpers of `run.mjs`, in empty cells; leaves them empty. */
export async function completing({ page, cell, text, shot, picksOnly }) {
  const isOpen = () => page.locator("#completion-list").isVisible();
  const field = () => page.evaluate(() => document.activeElement.value);
  const options = () => page.locator("#completion-list [role=option] strong").allTextContents();
  /** What a screen reader is told: the option that the field names, and whether it has a list. */
  const active = () => page.evaluate(() => {
    const [focused, named] = [document.activeElement, document.activeElement.getAttribute("aria-activedescendant")];
    return [focused.getAttribute("role"), focused.getAttribute("aria-expanded"), document.getElementById(named)?.querySelector("strong").textContent];
  });

  await cell("H1").click();
  await page.keyboard.type("=SU");
  assert.deepEqual((await options()).slice(0, 3), ["SUBSTITUTE", "SUM", "SUMIF"]);
  await page.keyboard.press("ArrowDown");
  assert.deepEqual(await active(), ["combobox", "true", "SUM"]);
  await shot("40-completion");
  for (const part of ["#completion", "#grid td.editor", ".formula"]) await accessible(page, part, "axe finds nothing, with the list");
  await page.keyboard.press("Tab");
  assert.deepEqual([await field(), await page.inputValue("#formula"), await isOpen()], ["=SUM(", "=SUM(", false]);
  assert.match(await page.textContent("#completion-help"), /^SUM\(number, …\) Adds up numbers and ranges\.$/);
  await page.keyboard.type("1,2)");
  assert.equal(await page.locator("#completion").isVisible(), false, "nothing is in the brackets any more");
  await page.keyboard.press("Backspace");
  await page.keyboard.press("Enter");
  assert.deepEqual([await text("H1"), await page.textContent("#name")], ["3", "H2"], "a bracket at the end may be left out");

  await page.keyboard.type("=AI.");
  assert.equal((await options()).length, 12);
  assert.equal((await options())[0], (await picksOnly()) ? "AI.CLASSIFY" : "AI.ASK", "what the model answers comes first");
  await page.keyboard.press("Escape");
  assert.deepEqual([await isOpen(), await field()], [false, "=AI."], "Escape closes the list alone");
  await page.keyboard.type("C");
  assert.equal(await isOpen(), false, "which stays away while the same name is typed");
  await page.keyboard.press("Escape");
  assert.equal(await text("H2"), "", "then the cell");

  await page.keyboard.type("=AI.CL");
  await page.locator("#completion-list [role=option]").first().click();
  await cell("G1").click();
  await page.keyboard.type(", ");
  assert.equal(await field(), "=AI.CLASSIFY(G1, ", "a press chooses, and another names a cell");
  assert.equal(await page.textContent("#completion-help strong"), "labels", "the argument that is typed stands out");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#completion").isVisible(), false);

  const long = '=IF(1>2, "a formula that is wider than what is left of the window", "its cell scrolls, and it stays whole")';
  await cell("J2").click();
  await page.keyboard.type(long);
  await page.keyboard.press("Enter");
  assert.equal(await text("J2"), "its cell scrolls, and it stays whole");
  await cell("J2").click();
  await page.keyboard.press("Delete");
  await cell("H2").click();

  await page.click("#formula");
  await page.keyboard.type("=tod");
  await page.keyboard.press("Enter");
  assert.equal(await field(), "=TODAY()");
  await page.keyboard.press("Escape");
  await cell("H1").click();
  await page.keyboard.press("Delete");
  return "functions that fit are listed in a cell and in the bar, taken by keys and by a press, and told with their arguments";
}
