// A server that is lost while a column fills, by a connection that breaks and by one that falls silent: the page says so,
// keeps what it has, takes edits, and goes on by itself.

import assert from "node:assert/strict";

const ROWS = 200;

/** Works on the page with the helpers of `run.mjs`; `network` cuts and mends what is between page and server. */
export async function reconnecting({ page, text, type, importFile, settled, until, asked, holdAnswers, network, shot }, run) {
  const rows = Array.from({ length: ROWS }, (_, i) => `"Call ${run}-${i} was ${["short", "long"][i % 2]}"`);
  await importFile("calls.csv", "text/csv", Buffer.from(rows.join("\n")));
  const status = () => page.textContent("#status");
  const says = (what, words) => until(what, async () => words.test(await status()));
  const progressed = (answers) => until(`${answers} answers`, async () => (await page.textContent("#run-left")).startsWith(`${answers} of `));
  const callsOf = (request) => JSON.parse(request.body).calls.length;

  const before = asked().length;
  const release = holdAnswers(30);
  await type("B1", `=AI.CLASSIFY(A1:A${ROWS}, "good, bad")`);
  await progressed(30);
  await network.cut();
  await says("the page says that the server is away", /Reconnecting: the server cannot be reached/);
  assert.match(await page.textContent("#run-left"), /^30 of 200 cells$/);
  await shot("16-reconnecting");
  await type("D1", "typed meanwhile");
  assert.equal(await text("D1"), "typed meanwhile");
  release();
  await network.mend();
  await says("it goes on by itself", /200 cells in/);
  const again = asked().slice(before + 1).reduce((sum, request) => sum + callsOf(request), 0);
  assert.equal(again, ROWS - 30, "what was answered is not asked again");
  const labels = await settled("B", 1, 50);
  assert.ok(labels.every((label) => ["good", "bad"].includes(label)), `labels: ${labels}`);

  const second = asked().length;
  const releaseSecond = holdAnswers(10);
  await type("C1", `=AI.CLASSIFY(A1:A${ROWS}, "yes, no")`);
  await progressed(10);
  const speak = network.silence();
  await says("silence is noticed", /Reconnecting/);
  speak();
  await until("the server is there again", async () => !/Reconnecting/.test(await status()));
  releaseSecond();
  await says("the stream goes on", /200 cells in/);
  assert.equal(asked().length, second + 1, "and nothing was asked twice");
  return "lost the server by a cut and by silence: said so, kept 30 answers, asked for the 170 others when it was back";
}
