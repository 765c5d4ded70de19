// A column of answers by the dialog: a prompt with columns in it, five rows to look at, then all of them.

import assert from "node:assert/strict";

/** Works on the page with the helpers of `run.mjs`. */
export async function aiColumns({ page, text, cell, importFile, settled, until, asked, shot, picksOnly }, run) {
  const rows = Array.from({ length: 8 }, (_, i) => `"Mail ${run}-${i} is ${i % 2 ? "kind" : "rude"}",Shop ${i % 3}`);
  await importFile("mails.csv", "text/csv", Buffer.from(`Mail,Place\n${rows.join("\n")}\n`));
  const before = asked().length;
  const callsOf = (request) => JSON.parse(request.body).calls;

  await page.click("#add-column");
  const isDemo = await picksOnly();
  assert.equal(await page.inputValue("#column-function"), isDemo ? "AI.CLASSIFY" : "AI.ASK", "what the model answers is chosen");
  assert.equal(await page.inputValue("#column-over"), "0", "of the column with the longest texts");
  await page.selectOption("#column-function", "AI.ASK");
  const first = await page.locator("#column-function option").first().textContent();
  assert.equal(first.endsWith("(not with the demo model)"), isDemo, first);
  assert.equal(await page.locator("#column .beyond").isVisible(), isDemo, "the demo model answers no prompt");
  assert.match(await page.locator("#column-inputs label").first().textContent(), /^Prompt/);
  assert.equal(await page.getAttribute("#column textarea", "placeholder"), "Summarize {Mail} in five words");
  assert.equal(await page.getAttribute("#column-name", "placeholder"), "Ask");
  assert.equal(await page.textContent("#column-cancel"), "Cancel");
  await page.focus("#column textarea");
  await page.keyboard.type("Shorten: ");
  await page.getByRole("button", { name: "{Mail}" }).click();
  await page.keyboard.type(" of ");
  await page.getByRole("button", { name: "{Place}" }).click();
  await page.click("#column-try");
  const preview = page.locator("#column-preview tr");
  await until("five rows are there", async () => {
    const shown = await preview.allTextContents();
    return shown.length === 5 && shown.every((line) => !line.includes("…"));
  });
  assert.equal(asked().length, before + 1, "five rows are one request");
  assert.deepEqual(callsOf(asked()[before]).map(({ args }) => args[0]).slice(0, 2), [
    `Shorten: Mail ${run}-0 is rude of Shop 0`, `Shorten: Mail ${run}-1 is kind of Shop 1`,
  ]);
  assert.equal(await text("C2"), "", "and nothing is in the sheet yet");
  await shot("17-ai-column");

  await page.selectOption("#column-function", "AI.CLASSIFY");
  assert.equal(await page.locator("#column .beyond").count(), 0, "but it picks labels");
  await page.selectOption("#column-over", { label: "Mail" });
  assert.equal(await page.getAttribute("#column-name", "placeholder"), "Classify", "what it is called without a name");
  await page.click("#column-name");
  await page.keyboard.type("Tone");
  await page.keyboard.press("Enter");
  assert.match(await page.textContent("#column-error"), /Labels is missing/);
  await page.focus('#column input[name="labels"]');
  await page.keyboard.type("kind, rude");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("dialog[open]").count(), 0);
  const answers = await settled("C", 2, 9);
  assert.ok(answers.every((answer) => ["kind", "rude"].includes(answer)), `answers: ${answers}`);
  assert.equal(await text("C1"), "Tone");
  await cell("C2").click();
  assert.equal(await page.inputValue("#formula"), '=AI.CLASSIFY(A2:A9, "kind, rude")');
  assert.equal(asked().length, before + 2);
  return "a column by the dialog: five rows of a prompt with two columns in it, then a column of labels";
}
