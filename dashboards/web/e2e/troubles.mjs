// A server that is busy, one that is full, a key that is revoked while a column fills, and five thousand rows of which many
// fail: each looks like what it is. That a server is lost is in `reconnect.mjs`, a spent budget in `budget.mjs`, a second tab
// in `tabs.mjs`.

import assert from "node:assert/strict";

const LARGE = 5_000;
const FEW = 20;
/** Of so many answers one is a failure. */
const EACH = 3;
const FAILED = Math.floor(LARGE / EACH);

/** Works on the page with the helpers of `run.mjs`. */
export async function troubles(tools, run) {
  const { step, operatorKey } = tools;
  step(await busy(tools, run));
  step(await full(tools, run));
  if (operatorKey) step(await revoked(tools, run));
  step(await failing(tools, run));
}

const rowsOf = (run, what, count) => Buffer.from(Array.from({ length: count }, (_, i) => `"${what} ${run}-${i} was fine"`).join("\n"));

/** A server that is there and says nothing for some seconds. */
async function busy({ page, type, importFile, settled, until, hold, shot }, run) {
  await importFile("busy.csv", "text/csv", rowsOf(run, "Train", FEW));
  const release = hold();
  await type("B1", `=AI.CLASSIFY(A1:A${FEW}, "good, bad")`);
  const status = () => page.textContent("#status");
  await until("the page says that the server is busy", async () => /^The server is busy/.test(await status()));
  assert.doesNotMatch(await status(), /Reconnecting/);
  assert.match(await page.textContent("#run-left"), /^0 of 20 cells/);
  await shot("26-busy");
  release();
  const labels = await settled("B", 1, FEW);
  assert.ok(labels.every((label) => ["good", "bad"].includes(label)), `labels: ${labels}`);
  assert.match(await status(), /^20 cells in/);
  return "a busy server is called busy and not lost";
}

/** A server that takes no more for now. */
async function full({ page, type, importFile, settled, until, asked, interfere, shot }, run) {
  await importFile("full.csv", "text/csv", rowsOf(run, "Ferry", FEW));
  const before = asked().length;
  const error = { message: "the tenant's queue is full", type: "rate_limit_error", code: "overloaded" };
  const mend = interfere({ refusal: { status: 429, headers: { "Retry-After": "1" }, body: { error } } }, /status of 429/);
  await type("B1", `=AI.CLASSIFY(A1:A${FEW}, "good, bad")`);
  await until("the page says that the server is full", async () => /^The server is full/.test(await page.textContent("#status")));
  await shot("27-full");
  mend();
  await settled("B", 1, FEW);
  assert.ok(asked().length > before + 1, "it was asked again by itself");
  assert.match(await page.textContent("#status"), /^20 cells in/);
  return "a full server is called full, and asked again";
}

/** A key that is revoked between a formula and its request. */
async function revoked({ page, type, importFile, settled, until, hold, interfere, shot, server, key, operatorKey }, run) {
  const api = (path, authorization, init = {}) =>
    fetch(`${server}/v1/${path}`, { ...init, headers: { Authorization: `Bearer ${authorization}`, "Content-Type": "application/json" } });
  const made = await (await api("keys", operatorKey, { method: "POST", body: JSON.stringify({ name: `short-${run}`, tenant: "default" }) })).json();
  const signIn = async (secret) => {
    await page.fill("#login-key", secret);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#login[open]", { state: "detached" });
  };
  await importFile("revoked.csv", "text/csv", rowsOf(run, "Tram", FEW));
  await page.click("#key");
  await signIn(made.key);
  const release = hold();
  const settle = interfere({}, /status of 401/);
  await type("B1", `=AI.CLASSIFY(A1:A${FEW}, "good, bad")`);
  await page.waitForSelector("#grid td.rs-pending");
  await api(`keys/${made.id}`, operatorKey, { method: "DELETE" });
  await until("the key works no more", async () => (await api("me", made.key)).status === 401);
  release();
  await page.waitForSelector("#login[open]");
  assert.match(await page.textContent("#login-error"), /^This key works no more: it was revoked or has expired/);
  await shot("28-revoked");
  await signIn(key);
  const isAnswered = async () => (await settled("B", 1, FEW)).every((label) => ["good", "bad"].includes(label));
  await until("the cells go on by themselves", isAnswered);
  settle();
  return "a key revoked during a run: a new one is asked for, and the cells go on";
}

/** Five thousand rows, of which each third has no answer. */
async function failing({ page, cell, text, type, importFile, until, asked, allow, interfere, shot }, run) {
  await importFile("failing.csv", "text/csv", rowsOf(run, "Bus", LARGE));
  const error = { message: "the answer was no label", type: "server_error" };
  const change = (event) => {
    const index = /^event: cell\ndata: .*"index":(\d+)/.exec(event)?.[1];
    if (index === undefined || Number(index) % EACH !== EACH - 1) return event;
    return `event: cell\ndata: ${JSON.stringify({ index: Number(index), error })}\n\n`;
  };
  const mend = interfere({ change });
  let said = 0;
  await page.exposeFunction("saidOfFailures", () => {
    said += 1;
  });
  await page.evaluate(() => new MutationObserver(() => {
    if (/without an answer/.test(document.querySelector("#status").value)) window.saidOfFailures();
  }).observe(document.querySelector("#status"), { childList: true, characterData: true, subtree: true }));
  await type("B1", `=AI.CLASSIFY(A1:A${LARGE}, "good, bad")`);
  await allow();
  await until("the bar tells how many failed", async () => /cells, [\d,]+ failed/.test(await page.textContent("#run-left")));
  await shot("29-failing");
  const over = new RegExp(`^5,000 cells in .*, ${FAILED.toLocaleString("en")} of them without an answer: “Retry failed”`);
  await until("it is over", async () => over.test(await page.textContent("#status")));
  mend();
  assert.equal(await page.locator("dialog[open]").count(), 0, "no dialog for any of them");
  assert.ok(said > 0 && said < 5, `one message: ${said}`);
  await cell("B3").click();
  assert.equal(await page.textContent("#note"), error.message, "the server's words, beside the formula");
  await shot("30-failed");
  const before = asked().length;
  await page.click("#retry");
  await allow();
  await until("those are answered", async () => new RegExp(`^${FAILED.toLocaleString("en")} cells in [^,]*$`).test(await page.textContent("#status")));
  const again = asked().slice(before).reduce((sum, { body }) => sum + JSON.parse(body).calls.length, 0);
  assert.equal(again, FAILED, "only what failed is asked again");
  await cell("B3").click();
  await page.keyboard.press("Control+ArrowDown");
  assert.match(await text(`B${LARGE}`), /^(good|bad)$/, "rows that come into the page show what came while they were not there");
  return `${LARGE} rows of which ${FAILED} failed: counted while they came and at the end, and only those were asked again`;
}
