// A server that goes while the page asks nothing of it: the page says so in every view, says where what was typed is, and
// brings it to the server when that is back. What waits for answers meanwhile is in `reconnect.mjs`.

import assert from "node:assert/strict";

import { looks } from "./looks.mjs";
import { fromFile } from "./menus.mjs";

const NAME = "Typed while away";

/** Works on the page with the helpers of `run.mjs`; `network` cuts and mends what is between page and server. */
export async function idling(tools) {
  const { page, type, until, fromServer, network } = tools;
  await fromFile(page, "#new");
  await type("A1", "before");
  await fromFile(page, "#rename");
  await page.keyboard.type(NAME);
  await page.keyboard.press("Enter");
  const marked = (mark) => page.evaluate((name) => document.body.dataset[name], mark);
  await until("all is saved", async () => (await marked("saved")) === "yes" && (await marked("kept")) === "yes");
  const says = (what, words) => until(what, async () => words.test(await page.textContent("#server-words")));

  // What was said of it before has left.
  await says("nothing is said of the server", /^$/);

  await network.cut();
  await says("an idle page says that its server is away", /^The server has not answered since \d+:\d\d:\d\d .* What was typed before is saved on the server/);
  await until("nor is it called saved", async () => (await page.textContent("#kept")) === "Saved before: the server cannot be reached");
  await type("A2", "meanwhile");
  await says("what is typed is not there", /What was typed last is not saved on the server yet: this browser keeps it/);
  await until("and said so below too", async () => /^Kept in this browser only: /.test(await page.textContent("#kept")));
  await looks(tools, "35-away", "body");
  await page.click("#view-live");
  assert.equal(await page.isVisible("#server-words"), true, "in every view");
  await page.click("#view-sheet");

  await network.mend();
  await page.focus("#server-again");
  await page.keyboard.press("Enter");
  await says("it is back", /^The server answers again\.$/);
  assert.equal(await page.evaluate(() => document.activeElement !== document.body), true, "the keys are somebody's");
  assert.equal(await page.isVisible("#server-again"), false);
  await until("what was typed is there", async () => (await page.textContent("#kept")) === "Saved");
  const { data } = await fromServer("v1/workbooks");
  const { content } = await fromServer(`v1/workbooks/${data.find(({ name }) => name === NAME).id}`);
  assert.deepEqual(content.rows.map(([first]) => first), ["before", "meanwhile"]);
  await says("and no more is said of it", /^$/);
  return "an idle page said that its server was away and what was saved, and saved the rest when it was back";
}
