// The live view while a column runs, and after it: lanes, zoom by wheel and by button, replay, decisions, steps by mouse and by
// key, the queue, the what-if; and a second tab that is opened when the work is over.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const LANES = '#live table[aria-label="relQueries over time"]';

/** Drives it; gives a line about it. */
export async function live({ page, browser, address, watch, importFile, type, until, asked, hold, allow, shot, tall, calls, operate, ARTIFACTS }, run) {
  const letters = Array.from({ length: 1_500 }, (_, i) => `"Letter ${run}-${i} is ${["kind", "rude"][i % 2]}, and long enough to take a while"`);
  await importFile("letters.csv", "text/csv", Buffer.from(letters.join("\n")));
  const release = hold();
  await type("B1", "=AI.SUMMARIZE(A1:A1500)");
  await allow();
  await until("the column is asked", () => asked().some(({ body }) => body.includes(`Letter ${run}-0 `)));
  const body = JSON.parse(asked().find(({ body }) => body.includes(`Letter ${run}-0 `)).body);
  assert.deepEqual(body.labels, [{ workbook: "letters", column: "B", formula: "=AI.SUMMARIZE(A1:A1500)" }], "it says what it is for");
  await page.click("#view-live");
  await page.waitForFunction(() => document.querySelector("#live > [role=status]").textContent === "Live");
  await page.setViewportSize({ width: 1280, height: 1_900 });
  release();
  await page.waitForFunction(() => document.querySelectorAll("#live-steps [role=option]").length > 2);
  await page.waitForFunction(() => document.querySelector('#live table[aria-label="Queue"] tbody td:nth-child(5)')?.textContent);
  await page.waitForSelector("#live .lanes canvas");
  await page.click("#lanes-table summary");
  await shot("6-live");
  await page.setViewportSize({ width: 1280, height: 760 });
  await steps({ page, until });
  const row = page.locator(`${LANES} tbody tr`, { hasText: "B, letters" }).first();
  await until("the column is over", async () => (await row.textContent()).includes("completed"));
  const words = await row.textContent();
  for (const part of ["=AI.SUMMARIZE(A1:A1500)", "core ", "tail "]) assert.ok(words.includes(part), `${words} lacks ${part}`);
  assert.match(await page.textContent("#decisions"), /Your 1,500 cells \(B, letters\) /, "a decision in a sentence");
  await zoom({ page, until, address }, run);
  await replay({ page, until });
  assert.match(await page.textContent('#live table[aria-label="Shares of step time, last minute"]'), /you.*%/s);
  const said = await whatIf({ page, tall, shot });
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("#save-trace")]);
  const trace = join(ARTIFACTS, "trace.json");
  await file.saveAs(trace);
  assert.equal(JSON.parse(readFileSync(trace, "utf8")).schema, "relserve-trace/1");
  await late({ browser, address, watch });
  const streams = () => calls.filter(({ path, isEnded }) => path === "/v1/scheduler/events" && !isEnded).length;
  await until("one stream is left", () => streams() === 1);
  await page.click("#view-sheet");
  await until("who comes back to the sheet goes on in it", () => page.evaluate(() => document.activeElement.closest("#grid") !== null));
  await until("nobody looks, nobody asks", () => streams() === 0);
  if (operate) await operator({ page, operate, until });
  return `live view: ${said}`;
}

/** Steps by key and by mouse. */
async function steps({ page, until }) {
  await page.focus("#live-steps");
  await page.keyboard.press("End");
  await page.keyboard.press("ArrowLeft");
  assert.match(await page.textContent("#live .step"), /^Step \d+: (prefill|decode|mixed), .*Why: /s, "a step is told by key");
  assert.equal(await page.locator('#live-steps [aria-selected="true"]').count(), 1);
  const chosen = await page.getAttribute("#live-steps", "aria-activedescendant");
  await page.evaluate((id) => {
    document.getElementById(id).dataset.lookedAt = "yes";
  }, chosen);
  const newest = () => page.locator("#live-steps [role=option]").last().getAttribute("id");
  const before = await newest();
  const isOver = async () => /B, letters.*completed/s.test(await page.textContent(LANES));
  await until("another step comes, or it is over", async () => (await newest()) !== before || isOver());
  assert.equal(await page.locator(`#${chosen}[data-looked-at][aria-selected="true"]`).count(), 1, "what is looked at stays, and is not drawn anew");
  await page.keyboard.press("Escape");
  await page.hover("#live-steps [role=option]:last-child");
  assert.match(await page.textContent("#live .step"), /^Step \d+/, "and by mouse");
  await page.mouse.move(5, 5);
}

/** Wheel, buttons and a drag change what is shown; what was zoomed to stays while time goes on; and all comes back. */
async function zoom({ page, until, address }, run) {
  const shown = () => page.evaluate(() => {
    const { from, to } = document.querySelector("#live .lanes").dataset;
    return { from: Number(from), to: Number(to), width: Number(to) - Number(from) };
  });
  await page.click("#lanes-all");
  assert.match(await page.textContent("#lanes-shown"), /^Shown: −.+ to now$/);
  const all = await shown();
  const chart = page.locator("#live .lanes canvas").first();
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  const scrolled = () => page.evaluate(() => document.querySelector("#live").scrollTop);
  const top = await scrolled();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 20);
  await page.mouse.wheel(0, 120);
  await until("the wheel alone scrolls the page", async () => (await scrolled()) !== top);
  await page.mouse.wheel(0, -120);
  await until("and back", async () => (await scrolled()) === top);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -240);
  await until("with Ctrl it zooms", async () => (await shown()).width < 0.95 * all.width);
  await page.keyboard.up("Control");
  const wheel = await shown();
  await page.click("#lanes-in");
  await until("the button zooms further", async () => (await shown()).width < 0.6 * wheel.width);
  const near = await shown();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 20);
  await page.mouse.down();
  // One move: the chart puts off what comes within 100 ms of the last.
  await page.mouse.move(box.x + box.width * 0.7, box.y + 20);
  await page.mouse.up();
  await until("a drag to the right shows what was earlier", async () => (await shown()).from < near.from);
  const dragged = await shown();
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${process.env.RELSERVE_KEY}` };
  const ask = async (text) => {
    const calls = [{ function: "summarize", args: [text], label: 0 }];
    const body = JSON.stringify({ labels: [{ workbook: "elsewhere", column: "Z Late" }], calls });
    assert.equal((await fetch(`${address}/v1/cells`, { method: "POST", headers, body })).status, 200);
  };
  await ask(`A late word of ${run}`);
  await until("what came since has its lane", () => page.locator(`${LANES} tbody tr`, { hasText: "Z Late, elsewhere" }).count());
  const { from, to } = await shown();
  const moved = [from - dragged.from, to - dragged.to];
  assert.ok(moved.every((by) => Math.abs(by) < 0.01 * dragged.width), `what is looked at stays: ${moved} of ${dragged.width}`);
  await page.focus("#lanes-all");
  await page.keyboard.press("Enter");
  await until("all comes back", async () => (await shown()).from === all.from && (await shown()).to > all.to);
  const back = await shown();
  // The run may be over, and a server without work says nothing.
  await ask(`A later word of ${run}`);
  await until("time goes on", async () => (await shown()).to > back.to);
  assert.equal((await shown()).from, all.from, "and all of it stays, from its beginning");
  await page.mouse.move(5, 5);
}

/** The last minutes once more: by key, played, and back to the present. */
async function replay({ page, until }) {
  const lanes = () => page.locator(`${LANES} tbody tr`).count();
  const last = () => page.locator(`${LANES} tbody tr`, { hasText: "B, letters" }).count();
  const whole = await lanes();
  assert.ok(whole >= 1);
  await page.focus("#replay-at");
  await page.keyboard.press("Home");
  await until("the beginning is shown", async () => /ago/.test(await page.textContent("#replay-said")));
  assert.ok((await lanes()) < whole || whole === 1, "relQueries that came later are not there yet");
  await page.selectOption("#replay-speed", "64");
  await page.click("#replay-play");
  await until("it is played to its end", async () => (await page.textContent("#replay-said")) === "Shows the present." && (await last()) > 0);
  await page.click("#replay-live");
  // One that was asked before may have come since.
  assert.ok((await lanes()) >= whole, "all are there again");
  const loud = await page.locator("#live output").evaluateAll((all) => all.filter((one) => one.getAttribute("aria-live") !== "off").map(({ id }) => id));
  assert.deepEqual(loud, [], "what changes with each drawing is not read out");
}

/** Both timelines, and how far the simulator is off. */
async function whatIf({ page, tall, shot }) {
  await page.selectOption("#what-if-policy", { label: "First come, first served" });
  await page.click("#what-if");
  await page.waitForFunction(() => /First come|nothing|longer than/.test(document.querySelector("#what-if-answer").textContent), undefined, { timeout: 30_000 });
  const answer = await page.textContent("#what-if-answer");
  assert.match(answer, /average latency .* under ".+", as now; under "First come, first served" /);
  const checked = await page.textContent("#what-if-check");
  assert.match(checked, /^As it was: .* were measured, where the simulator says .*\./);
  assert.equal(await page.locator('#live table[aria-label="Latencies by policy"] tbody tr').count(), 3, "two policies, and as it was");
  await page.waitForSelector("#live section[aria-labelledby=live-what-if] canvas");
  await page.click("#what-if-lanes-table summary");
  await page.waitForFunction(() => document.querySelector('#live table[aria-label="Both timelines"] tbody td'));
  assert.match(await page.textContent('#live table[aria-label="Both timelines"]'), /B, letters: as it was.*B, letters: simulated.*B, letters: First come, first served/s);
  await tall(() => shot("7-live-what-if"));
  return `${answer} ${checked}`;
}

/** An operator reads whose each relQuery is. */
async function operator({ page, operate, until }) {
  operate(true);
  await page.click("#view-live");
  const row = page.locator(`${LANES} tbody tr`, { hasText: "B, letters" }).first();
  await until("it is there; of one tenant alone no name stands before the column's", async () => (await row.count()) === 1);
  await until("and in the decisions", async () => /(^|: |: default's )1,500 cells \(B, letters\) /.test(await page.textContent("#decisions")));
  operate(false);
  await page.click("#view-sheet");
}

/** A tab that is opened when the work is over shows it, with its decisions. */
async function late({ browser, address, watch }) {
  const tab = await browser.newPage();
  watch(tab);
  await tab.goto(`${address}/#live`);
  await tab.waitForSelector("#live .lanes canvas");
  await tab.click("#lanes-table summary");
  await tab.waitForFunction((lanes) => document.querySelector(lanes)?.textContent.includes("B, letters"), LANES);
  await tab.waitForFunction(() => document.querySelector("#decisions").textContent.includes("Your 1,500 cells"));
  await tab.close();
}
