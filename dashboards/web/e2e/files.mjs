// Files as other programs leave them: another encoding, a quote too few, formulas that would ask the model.

import assert from "node:assert/strict";

/** Works on the page with the helpers of `run.mjs`. */
export async function files({ page, text, importFile, settled, until, asked }, run) {
  const status = () => page.textContent("#status");
  await importFile("old.csv", "text/csv", Buffer.from([...Buffer.from("Preis;5 "), 0x80, ...Buffer.from("\nOrt;Z"), 0xfc, ...Buffer.from("rich\n")]));
  assert.deepEqual([await text("B1"), await text("B2")], ["5 €", "Zürich"]);
  assert.match(await status(), /2 rows read from old\.csv\. It is not in UTF-8 and was read as Windows-1252/);

  await page.setInputFiles("#file", { name: "open.csv", mimeType: "text/csv", buffer: Buffer.from('a,b\n1,"two\n3,4\n') });
  await until("an open quote is told", async () => /open\.csv is not imported: the quote that opens in line 2 is never closed\./.test(await status()));
  assert.equal(await text("A1"), "Preis", "and nothing is imported");

  const before = asked().length;
  const table = Buffer.from(`Letter ${run} to a friend,=AI.RATE(A1),=1+1\nLetter ${run} to a foe,=AI.RATE(A2),=C1*2\n`);
  await importFile("kept.csv", "text/csv", table, async () => {
    assert.match(await page.textContent("dialog[open] h2"), /kept\.csv has 2 formulas that ask the model/);
    // What is in front does nothing that costs.
    await page.keyboard.press("Enter");
  });
  assert.deepEqual([await text("B1"), await text("C1"), await text("C2")], ["=AI.RATE(A1)", "2", "4"]);
  await importFile("run.csv", "text/csv", table);
  const ratings = await settled("B", 1, 2);
  assert.ok(ratings.every((rating) => /^[1-5]$/.test(rating)), `ratings: ${ratings}`);
  assert.equal(asked().length, before + 1, "only the second import asks");
  return "imported Windows-1252, refused an open quote, asked before a file's formulas ask the model";
}
