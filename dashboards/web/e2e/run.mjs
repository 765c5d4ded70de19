// The page in a real browser against a real server: see README.md. Prints what it measured; any failed
// expectation, console error or request to another host ends it with exit code 1.
//   RELSERVE_KEY=rs-... node e2e/run.mjs http://127.0.0.1:8080
// With SCREENSHOT=docs/images/sheet.png it takes the README's picture and tries nothing else.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { chromium } from "playwright-core";

import { askingAgain } from "./again.mjs";
import { aiColumns } from "./ai-column.mjs";
import { analysing } from "./analyst.mjs";
import { arranging } from "./arrange.mjs";
import { idling } from "./away.mjs";
import { budgeting } from "./budget.mjs";
import { ARTIFACTS, BROWSER, FLAGS, VIEWPORT, cellSelector, conclude, until, watch as watchPage } from "./harness.mjs";
import { completing } from "./completion.mjs";
import { files } from "./files.mjs";
import { beginning } from "./gallery.mjs";
import { german } from "./german.mjs";
import { inspecting } from "./inspect.mjs";
import { live } from "./live.mjs";
import { loggingIn } from "./login.mjs";
import { looking } from "./look.mjs";
import { looks } from "./looks.mjs";
import { begin, fromFile } from "./menus.mjs";
import { models } from "./models.mjs";
import { overriding } from "./override.mjs";
import { pausing } from "./pause.mjs";
import { proxy } from "./proxy.mjs";
import { reconnecting } from "./reconnect.mjs";
import { reviews } from "./reviews.mjs";
import { screenshot } from "./screenshot.mjs";
import { scrolling } from "./scroll.mjs";
import { showing } from "./shown.mjs";
import { stopping } from "./stop.mjs";
import { tabs } from "./tabs.mjs";
import { troubles } from "./troubles.mjs";

const SERVER = process.argv[2] ?? "http://127.0.0.1:8080";
const KEY = process.env.RELSERVE_KEY;
const LARGE = 5_000;

if (!KEY) {
  console.error("set RELSERVE_KEY to a key of the server");
  process.exit(2);
}

/** What the proxy saw, and the gate that holds calls back. */
const calls = [];
let gate = Promise.resolve();
/** What questions whether the server is there wait for, and whether it was away, of which browsers complain. */
let silence = Promise.resolve();
let wasAway = false;
/** The key of operators, where it is given; questions about the scheduler go with it while `isOperating`. */
const OPERATOR_KEY = process.env.RELSERVE_ADMIN_KEY;
let isOperating = false;
/** Whether calls without a key get one on their way, which is a server whose `auth.mode` is "none" to the page. */
let isOpen = false;
/** How many answers the next requests for cells get before the rest is held back, and until when. */
let held;
/** What happens to requests for cells on their way: see `proxy.mjs`. */
let onTheWay = {};
/** What else a browser may complain of for a while. */
let mayFail;
const asked = () => calls.filter(({ path, body }) => path === "/v1/cells" && body);
const between = await proxy(SERVER, (call) => {
  calls.push(call);
  if (call.path === "/healthz") return silence;
  if (isOpen) call.headers.authorization ??= `Bearer ${KEY}`;
  if (isOperating && call.path.startsWith("/v1/scheduler")) call.headers.authorization = `Bearer ${OPERATOR_KEY}`;
  if (call.path !== "/v1/cells") return undefined;
  Object.assign(call, onTheWay, held && { hold: held });
  if (call.hold || call.change) delete call.headers["accept-encoding"];
  return gate;
});
const address = `http://127.0.0.1:${between.address().port}`;

/** The network between page and server. */
const network = {
  async cut() {
    wasAway = true;
    await new Promise((then) => {
      between.close(then);
      between.closeAllConnections();
    });
  },
  async mend() {
    await new Promise((then) => between.listen(Number(new URL(address).port), "127.0.0.1", then));
  },
  silence() {
    let speak;
    silence = new Promise((resolve) => {
      speak = resolve;
    });
    return speak;
  },
};

/** Has the live view ask as an operator, or as the tenant. */
function operate(on) {
  isOperating = on;
}

/** Has something happen to requests for cells on their way, and the browser complain of it, until what it gives is called. */
function interfere(what, complaints) {
  [onTheWay, mayFail] = [what, complaints];
  return () => {
    [onTheWay, mayFail] = [{}, undefined];
  };
}

function hold() {
  let release;
  gate = new Promise((resolve) => {
    release = resolve;
  });
  return release;
}

/** Lets so many answers of a request through, and the rest when what it gives is called. */
function holdAnswers(answers) {
  let release;
  const released = new Promise((resolve) => {
    release = resolve;
  });
  held = { answers, released };
  return () => {
    held = undefined;
    release();
  };
}

const profile = mkdtempSync(join(tmpdir(), "relserve-web-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: BROWSER, headless: true, args: FLAGS, viewport: VIEWPORT, acceptDownloads: true, locale: "en-US",
});
// As long as `until` waits.
browser.setDefaultTimeout(60_000);
const page = browser.pages()[0] ?? (await browser.newPage());
const problems = [];
let hasKey = false;
/** What a page's console may say. */
function isExpected(message) {
  // The first question goes without a key, since some servers want none.
  if (!hasKey && message.location().url === `${address}/v1/models` && /status of 401/.test(message.text())) return true;
  if (mayFail?.test(message.text())) return true;
  return wasAway && /Failed to load resource: net::ERR_/.test(message.text());
}
/** Notes what must not happen on a page. */
const watch = (tab) => watchPage(tab, address, problems, isExpected);
watch(page);

mkdirSync(ARTIFACTS, { recursive: true });
const shot = (name) => page.screenshot({ path: join(ARTIFACTS, `${name}.png`) });
const cellOf = (tab, name) => tab.locator(cellSelector(name));
const cell = (name) => cellOf(page, name);
const text = (name) => cell(name).textContent();
/** How many calls the n-th request has, once it was sent; no other may have been sent beside it. */
async function request(number) {
  await until(`request ${number}`, () => asked().length >= number);
  assert.equal(asked().length, number);
  return JSON.parse(asked()[number - 1].body).calls.length;
}
/** What the server says itself, past the page. */
async function fromServer(path) {
  const reply = await fetch(`${SERVER}/${path}`, { headers: { Authorization: `Bearer ${KEY}` } });
  return reply.json();
}
/** Prompt tokens that the model has seen in all. */
/** Whether the model refuses functions that write text. */
const picksOnly = async () => (await fromServer("v1/models")).data[0].picks_only === true;
const promptTokens = async () => (await fromServer("v1/scheduler")).prompt_tokens;
/** Waits until nothing waits, and gives the texts of a column. */
async function settled(letter, from, to) {
  await page.waitForFunction(() => document.querySelectorAll("#grid td.rs-pending").length === 0, undefined, { timeout: 120_000 });
  return page.evaluate(
    ([x, first, last]) =>
      Array.from(document.querySelectorAll(`#grid td[data-x="${x}"][data-y]`))
        .filter((td) => Number(td.dataset.y) >= first && Number(td.dataset.y) <= last)
        .map((td) => td.textContent),
    [letter.charCodeAt(0) - 65, from - 1, to - 1],
  );
}
async function typeInto(tab, name, formula) {
  await cellOf(tab, name).click();
  await tab.fill("#formula", formula);
  await tab.press("#formula", "Enter");
}
const type = (name, formula) => typeInto(page, name, formula);
/** Lets many cells go out, after what they cost. */
async function allow() {
  await page.waitForSelector("#estimate[open]");
  await page.click("#estimate-run");
}
/** Imports a file; where its formulas would ask the model, `decide` presses a button of the question. */
async function importFile(name, mimeType, buffer, decide = () => page.click("dialog[open] .main")) {
  await page.setInputFiles("#file", { name, mimeType, buffer });
  const title = name.replace(/\.\w+$/, "");
  const isOpen = () => page.evaluate(() => document.querySelector("#sheets").selectedOptions[0]?.text).then((shown) => shown === title);
  const isAsked = () => page.locator("dialog[open]", { hasText: name }).isVisible();
  await until("it is open, or there is a question", async () => (await isOpen()) || (await isAsked()));
  if (await isAsked()) await decide();
  await until("it is open", isOpen);
}
let lastStep = Date.now();
/** Says what was tried, and what it took. */
function step(words) {
  const now = Date.now();
  console.log(`- ${words} (${((now - lastStep) / 1_000).toFixed(1)} s)`);
  lastStep = now;
}
const round = (milliseconds) => `${Math.round(milliseconds)} ms`;

/** The key dialog: not there where no key is wanted, and taken where one is. */
async function logIn() {
  isOpen = true;
  await page.goto(address);
  await page.waitForFunction(() => document.querySelector("#model").textContent !== "");
  assert.equal(await page.locator("dialog[open]").count(), 0, "a server that wants no key is not asked for one");
  // The page that goes has its sheet kept: by the server that still wants no key.
  await until("what was opened is kept", async () => (await page.getAttribute("body", "data-kept")) === "yes");
  await page.goto("about:blank");
  isOpen = false;
  await page.goto(address);
  step(await loggingIn({ page, browser, address, cell, text, shot, until, picksOnly }, KEY));
  hasKey = true;
  step(await models({ page, until, shot, picksOnly }));
  const { steps } = await fromServer("v1/scheduler");
  if (steps > 0) return;
  await page.click("#view-live");
  await page.locator("#live .empty", { hasText: "Nothing has run yet" }).waitFor();
  await looks({ page, shot }, "34-idle", "#live");
  await page.getByRole("link", { name: "To the sheet" }).click();
  await cell("A1").waitFor();
  step("a live view of nothing says what will be there");
}

async function run() {
  await logIn();
  if (process.env.SCREENSHOT) return step(await screenshot({ page, cell, settled, holdAnswers }, process.env.SCREENSHOT));

  // A new subject each run: the server's cache must not know the first answers.
  const run = Date.now().toString(36);
  const tools = {
    page, cell, text, type, importFile, settled, until, asked, request, hold, holdAnswers, allow, shot, step, fromServer, picksOnly,
    promptTokens, interfere, ARTIFACTS,
  };
  await reviews(tools, run);
  await byHand();
  step(await completing(tools));
  step(await overriding(tools, run));
  step(await aiColumns(tools, run));
  step(await files(tools, run));
  step(await tabs({ page, browser, address, watch, cellOf, type: typeInto, until, shot }));
  step(await arranging(tools, run));
  step(await beginning(tools));
  step(await inspecting(tools, run));
  step(await askingAgain(tools, run));
  step(await showing(tools, run));
  step(await pausing(tools, run));
  step(await budgeting(tools, run));
  step(await analysing(tools, run));
  step(await stopping(tools, run));
  step(await reconnecting({ ...tools, network }, run));
  step(await idling({ ...tools, network }));
  await troubles({ ...tools, server: SERVER, key: KEY, operatorKey: OPERATOR_KEY }, run);
  await large(run);
  step(await live({ ...tools, browser, address, watch, tall, calls, operate: OPERATOR_KEY && operate }, run));
  step(await looking(tools));
  step(await german({ address, problems, keys: { member: KEY, operator: OPERATOR_KEY } }, run));
  await dark();
}

/** The page in the colours of the night. */
async function dark() {
  await page.emulateMedia({ colorScheme: "dark" });
  await begin(page, "Support tickets");
  await settled("B", 2, 13);
  await page.click("#usage summary");
  await shot("8-dark");
  await page.click("#view-live");
  await page.waitForSelector("#live-steps [role=option]");
  await tall(() => shot("9-live-dark"));
  step("dark");
}

/** Typing, filling by the handle, copying and pasting, as hands do it. */
async function byHand() {
  await fromFile(page, "#new");
  assert.equal(await page.textContent("#status"), "", "what was said of another sheet is gone");
  await cell("A1").click();
  for (const line of ["1", "2", "3"]) {
    await page.keyboard.type(line);
    await page.keyboard.press("Enter");
  }
  await cell("B1").click();
  await page.keyboard.type("=A1*$A$2+10");
  await page.keyboard.press("Enter");
  await cell("B1").click();
  const [from, to] = [await page.locator(".jss_corner").first().boundingBox(), await cell("B3").boundingBox()];
  await page.mouse.move(from.x + from.width / 2, from.y + from.height / 2);
  await page.mouse.down();
  await page.mouse.move(to.x + 20, to.y - 10, { steps: 4 });
  await page.mouse.move(to.x + 20, to.y + 10, { steps: 4 });
  await page.mouse.up();
  await cell("B3").click();
  assert.deepEqual([await text("B1"), await text("B2"), await text("B3")], ["12", "14", "16"]);
  assert.equal(await page.inputValue("#formula"), "=A3*$A$2+10");
  await page.keyboard.press("Control+c");
  await cell("C2").click();
  await page.keyboard.press("Control+v");
  await until("a pasted formula moves", async () => (await page.inputValue("#formula")) === "=B2*$A$2+10");
  await cell("D1").click();
  await page.keyboard.type('"; document.title = "stolen"; " <img src=x>');
  await page.keyboard.press("Enter");
  await page.keyboard.type("=UPPER(D1)&1");
  await page.keyboard.press("Enter");
  assert.match(await text("D2"), /STOLEN.*<IMG SRC=X>1$/, "a cell's text is text, in formulas too");
  assert.equal(await page.title(), "RelServe");
  await page.keyboard.type("=1+");
  assert.equal(await page.inputValue("#formula"), "=1+", "the bar shows what is typed in a cell");
  await page.keyboard.press("Escape");
  await until("and what was there when that is called off", async () => (await page.inputValue("#formula")) === "");
  await page.click("#formula");
  await page.keyboard.type("=A1+41");
  await cell("E5").click();
  assert.deepEqual([await text("D3"), await page.textContent("#name")], ["42", "E5"], "what is typed in the bar is kept by a press elsewhere");
  await pointing();
  await cell("E5").click();
  await page.click("#formula");
  await page.keyboard.type("=UPPER(\u201Cround quotes\u201D)");
  await page.keyboard.press("Enter");
  assert.equal(await text("E5"), "ROUND QUOTES", "as a phone types them");
  await page.keyboard.type("=AI.CLASSIFY(A1:A3)");
  await page.keyboard.press("Enter");
  assert.equal(await page.textContent("#status"), "E6: AI.CLASSIFY: argument `labels` is missing", "why it failed, though its cell is left");
  for (const _ of ["E6", "E5"]) await page.keyboard.press("Control+z");
  await cell("E5").click();
  await page.click("#formula");
  await page.keyboard.type("nothing");
  await page.keyboard.press("Escape");
  assert.equal(await text("E5"), "");
  await cell("D3").click();
  await page.keyboard.press("Delete");
  await page.keyboard.press("F6");
  assert.equal(await page.evaluate(() => document.activeElement.id), "formula");
  await page.keyboard.press("F6");
  await page.keyboard.press("ArrowUp");
  assert.match(await page.textContent("#spoken"), /^D2, /, "the selected cell is spoken");
  assert.equal(await page.textContent("#selection"), "", "one cell has no sum");
  await cell("A1").click();
  await page.keyboard.down("Shift");
  for (const key of ["ArrowRight", "ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
  await page.keyboard.up("Shift");
  assert.equal(await page.textContent("#selection"), "Sum 48 · Average 8 · Min 1 · Max 16 · Count 6");
  await pasteCsv();
  step("typed, filled by the handle, copied and pasted, a CSV too; F6, arrows, and the sum of a selection");
}

/** References by presses on cells, while a formula is typed in a cell and in the bar; A1 to A3 have 1, 2, 3. */
async function pointing() {
  const middle = async (name) => {
    const { x, y, width, height } = await cell(name).boundingBox();
    return [x + width / 2, y + height / 2];
  };
  await cell("E7").click();
  await page.keyboard.type("=SUM(");
  await page.mouse.move(...(await middle("A1")));
  await page.mouse.down();
  await page.mouse.move(...(await middle("A2")));
  await page.mouse.move(...(await middle("A3")));
  await page.mouse.up();
  assert.equal(await page.inputValue("#formula"), "=SUM(A1:A3");
  await page.keyboard.type(")");
  await page.keyboard.press("Enter");
  assert.equal(await text("E7"), "6", "a drag while a formula is typed is a range");
  await page.click("#formula");
  await page.keyboard.type("=");
  await cell("A2").click();
  await cell("A3").click();
  await page.keyboard.type("*10");
  await page.keyboard.press("Enter");
  assert.equal(await text("E8"), "30", "and a press in the bar's formula is a cell, the last one that was pressed");
  for (const _ of ["E8", "E7"]) await page.keyboard.press("Control+z");
  assert.equal(await text("E7"), "");
}

/** A pasted CSV is a table in columns that it has room in; what came from this grid is not taken for one. */
async function pasteCsv() {
  const put = (words) => page.evaluate((data) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text", data);
    dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
  }, words);
  await cell("F1").click();
  await put('Name,"What Ada, Bob and others said"\r\nAda,"Fine, really, and worth every cent"\r\n');
  assert.deepEqual([await text("F1"), await text("G1"), await text("F2"), await text("G2")],
    ["Name", "What Ada, Bob and others said", "Ada", "Fine, really, and worth every cent"]);
  assert.ok((await cell("G2").boundingBox()).width > 200, "the column has room for its text");
  assert.equal(await page.textContent("#status"), "2 rows pasted as a CSV, in 2 columns.");
  await page.click("#undelete");
  assert.deepEqual([await text("F2"), await text("G2")], ['Ada,"Fine, really, and worth every cent"', ""], "its lines, where they are wanted");
  await page.keyboard.press("Control+z");
  assert.equal(await text("F2"), "");
}

/** Runs something on a page that is high enough to see all of it. */
async function tall(then) {
  await page.setViewportSize({ width: 1280, height: 1_900 });
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  await then();
  await page.setViewportSize({ width: 1280, height: 760 });
}

/** A large column: bounded requests, and a page that still answers. */
async function large(run) {
  const rows = Array.from({ length: LARGE }, (_, i) => `"Row ${run}-${i} is ${["fine", "poor", "late", "new"][i % 4]}"`);
  const opening = Date.now();
  await importFile("large.csv", "text/csv", Buffer.from(rows.join("\n")));
  step(`opened ${LARGE} rows in ${round(Date.now() - opening)}`);
  step(await scrolling({ page, cell, text, until, shot }, LARGE));
  const before = asked().length;
  await page.evaluate(() => {
    const state = { worst: 0, last: performance.now(), frames: 0 };
    window.frames5000 = state;
    const frame = (now) => {
      state.worst = Math.max(state.worst, now - state.last);
      state.last = now;
      state.frames += 1;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  const started = Date.now();
  await type("B1", `=AI.CLASSIFY(A1:A${LARGE}, "good, bad")`);
  await allow();
  await page.waitForFunction(() => document.querySelector('#grid td[data-x="1"][data-y="0"]').textContent !== "", undefined, { timeout: 30_000 });
  await shot("4-large");
  // The page answers while it fills: a cell takes text.
  const typing = Date.now();
  await type("D1", "still here");
  assert.equal(await text("D1"), "still here");
  const typed = Date.now() - typing;
  await page.waitForFunction(() => /^[\d,]+ cells in/.test(document.querySelector("#status").value), undefined, { timeout: 300_000 });
  const took = Date.now() - started;
  const { worst } = await page.evaluate(() => window.frames5000);
  const sent = asked().slice(before);
  const cells = sent.reduce((sum, { body }) => sum + JSON.parse(body).calls.length, 0);
  assert.equal(cells, LARGE);
  assert.ok(sent.length <= 2, `${sent.length} requests`);
  await shot("5-large-filled");
  step(`${LARGE} cells: ${sent.length} request(s), filled in ${round(took)}, typing took ${round(typed)}, longest frame ${round(worst)}`);
}

const close = async () => {
  await browser.close();
  between.close();
  between.closeAllConnections();
  rmSync(profile, { recursive: true, force: true });
};
await conclude("e2e", problems, run, close, () => shot("failed"));
