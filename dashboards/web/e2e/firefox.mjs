// The page in Debian's Firefox against a real server: a link signs in, a formula typed into a cell fills a column, an answer
// is typed over and comes back, a run is stopped, the live view opens.
//   RELSERVE_SIGN_IN=http://127.0.0.1:8080/#sign-in=si-... node e2e/firefox.mjs
// Any failed expectation, message of the console or request to another host ends it with exit code 1.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { firefox } from "./bidi.mjs";
import { ARTIFACTS, cellSelector, conclude, until } from "./harness.mjs";
import { fromFile } from "./menus.mjs";
import { proxy } from "./proxy.mjs";

const LINK = new URL(process.env.RELSERVE_SIGN_IN ?? "about:blank");
const ROWS = 5;

if (!LINK.hash.startsWith("#sign-in=")) {
  console.error("set RELSERVE_SIGN_IN to a link that `relserve sign-in` prints");
  process.exit(2);
}

/** What the next requests for cells wait for. */
let gate = Promise.resolve();
const calls = [];
const between = await proxy(LINK.origin, (call) => {
  calls.push(call);
  return call.path === "/v1/cells" ? gate : undefined;
});
const address = `http://127.0.0.1:${between.address().port}`;
const problems = [];
const { page, close } = await firefox(process.env.FIREFOX ?? "/usr/bin/firefox-esr", problems);
mkdirSync(ARTIFACTS, { recursive: true });
const shot = (name) => page.shot(join(ARTIFACTS, `firefox-${name}.png`));
const column = (letter) => Promise.all(Array.from({ length: ROWS }, (_, i) => page.cell(`${letter}${i + 1}`)));
const isFilled = (letter) => async () => (await column(letter)).every((text) => !["", "…"].includes(text));
const status = () => page.evaluate(() => document.querySelector("#status").value);

async function signIn() {
  await page.goto(`${address}/${LINK.hash}`);
  await until("the link signs in", async () => (await page.text("#model")) !== "");
  // Its name moves what stands beside it.
  await until("a workbook is open", () => page.evaluate(() => document.querySelector("#title").value !== ""));
  await until("its sheet is there", () => page.isVisible(cellSelector("A1")));
  assert.equal(await page.evaluate(() => location.href), `${address}/`, "the token is out of the address bar");
  assert.equal(await page.isVisible("dialog[open]"), false);
}

/** Types down a column, and a formula that fills the next one. */
async function fill() {
  await fromFile(page, "#new");
  await page.click(cellSelector("A1"));
  for (let row = 1; row <= ROWS; row += 1) {
    await page.type(`Parcel ${Date.now().toString(36)}-${row} was ${row % 2 ? "late" : "fine"}`);
    await page.press("Enter");
  }
  await page.click(cellSelector("B1"));
  await page.type(`=AI.CLASSIFY(A1:A${ROWS}, "good, bad")`);
  await page.press("Enter");
  await until("a column fills", isFilled("B"));
  const answers = await column("B");
  assert.ok(answers.every((answer) => ["good", "bad"].includes(answer)), `${answers}`);
  await shot("filled");
  return answers;
}

async function override(answers) {
  await page.click(cellSelector("B3"));
  await page.type("mine");
  await page.press("Enter");
  assert.deepEqual(await column("B"), answers.with(2, "mine"), "what is typed stands, and the others stay");
  await page.click(cellSelector("B3"));
  await page.press("Delete");
  assert.deepEqual(await column("B"), answers, "Delete brings the answer back");
  await page.press("Control+c");
  await page.click(cellSelector("D1"));
  await page.press("Control+v");
  await until("an answer is pasted", async () => (await page.cell("D1")) === answers[2]);
  await page.press("Control+z");
  assert.equal(await page.cell("D1"), "", "and one step back");
}

async function stop() {
  let release;
  gate = new Promise((resolve) => {
    release = resolve;
  });
  await page.click(cellSelector("C1"));
  await page.type(`=AI.CLASSIFY(A1:A${ROWS}, "early, late")`);
  await page.press("Enter");
  await page.click("#stop");
  await until("the page says so", async () => /^Stopped: 0 of 5 cells/.test(await status()));
  await until("its cells say so", async () => (await column("C")).every((text) => text === "#STOPPED!"));
  await shot("stopped");
  release();
  await page.click("#retry");
  await until("it is asked again", isFilled("C"));
  await until("nothing is stopped", async () => !(await column("C")).includes("#STOPPED!"));
}

async function live() {
  await page.click("#view-live");
  await until("the lanes are drawn", () => page.isVisible("#live canvas"));
  await until("it tells of both columns", async () => {
    const words = await page.text("#live");
    return /cells \(B, .*began/.test(words) && /cells \(C, .*began/.test(words);
  });
  await shot("live");
  await page.click("#view-sheet");
  await until("the sheet is back", () => page.isVisible(cellSelector("A1")));
}

async function run() {
  await signIn();
  const answers = await fill();
  await override(answers);
  await stop();
  await live();
  console.log("- signed in, filled a column, typed over an answer, copied and pasted, stopped, saw the live view");
}

await conclude("firefox", problems, run, async () => {
  await close();
  between.close();
  between.closeAllConnections();
}, () => shot("failed"));
