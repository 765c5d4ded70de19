// People, in a real browser against a real server: a link signs in once, a second machine sees what the first typed, both
// keep what they typed where they differ, the last letters survive the page's end, an older version comes back, what the
// browser kept before there were workbooks goes to the server, readers read, operators see all tenants.
//   RELSERVE_SIGN_IN=http://127.0.0.1:8080/#sign-in=si-... node e2e/people.mjs
// The link is one that `relserve sign-in` prints, of a server whose `workbooks.version_ms` is 0. Any failed expectation, console error or request to another host ends it
// with exit code 1.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { chromium } from "playwright-core";

import { ARTIFACTS, BROWSER, FLAGS, VIEWPORT, cellSelector, conclude, until, watch } from "./harness.mjs";
import { firstAnswer, inWords } from "./newcomer.mjs";
import { looks } from "./looks.mjs";
import { fromFile } from "./menus.mjs";

const LINK = process.env.RELSERVE_SIGN_IN ?? "";

if (!LINK.includes("#sign-in=")) {
  console.error("set RELSERVE_SIGN_IN to a link that `relserve sign-in` prints");
  process.exit(2);
}
const address = new URL(LINK).origin;
const browser = await chromium.launch({ executablePath: BROWSER, headless: true, args: FLAGS });
const problems = [];

/** What fails on a machine without a network. */
const AWAY = /v1\/|\/healthz$/;

/** A browser of its own; what may fail on it stands in its `mayFail`. */
async function machine() {
  const context = await browser.newContext({ locale: "en-US", viewport: VIEWPORT });
  const page = await context.newPage();
  watch(page, address, problems, (message) =>
    page.mayFail?.test(message.location().url) && /Failed to load resource/.test(message.text()));
  return page;
}

const cellOf = (page, name) => page.locator(cellSelector(name));
const shot = (page, name) => page.screenshot({ path: join(ARTIFACTS, `${name}.png`) });
const kept = (page) => until("the server has it", () =>
  page.evaluate(() => document.body.dataset.saved === "yes" && document.body.dataset.kept === "yes"));
const shows = (page, at, text) => until(`${at} is ${text}`, async () => (await cellOf(page, at).textContent()) === text);
const names = (page) => page.evaluate(() => Array.from(document.querySelector("#sheets").options, ({ text }) => text));
const told = async (page, words) => assert.match(await page.textContent("#status"), words);

async function type(page, name, text) {
  await cellOf(page, name).click();
  await page.fill("#formula", text);
  await page.press("#formula", "Enter");
}

async function open(page, name) {
  await until(`${name} is listed`, async () => (await names(page)).includes(name));
  await page.selectOption("#sheets", { label: name });
}

/** Opens the link on a machine, and a second time on another. */
async function signIn() {
  const page = await machine();
  const took = await firstAnswer(page, LINK);
  assert.notEqual(await page.textContent("#model"), "", "the link signs in");
  assert.equal(await page.evaluate(() => location.href), `${address}/`, "the token is out of the address bar");
  await until("it is told who", async () => /\(operator\)/.test(await page.textContent("#tenant")));
  assert.equal(await page.locator("dialog[open]").count(), 0);
  await demo(page);
  const used = await machine();
  used.mayFail = /v1\/(sign-in|models)/;
  await used.goto(LINK);
  await used.waitForSelector("#login[open]");
  assert.match(await used.textContent("#login-error"), /Not signed in: this link was used/);
  await used.context().close();
  console.log(`- a link signed in, once; ${inWords(took)}`);
  return page;
}

/** The demo model answers: what it can do is said, and what it refuses is marked. */
async function demo(page) {
  assert.equal(await page.textContent(".status .beyond"), "Demo model: labels, ratings and yes-no only");
  assert.equal(await page.locator(".status .beyond").isVisible(), true);
  await page.click("#add-column");
  const options = await page.locator("#column-function option").allTextContents();
  const answered = options.filter((option) => !option.endsWith(" (not with the demo model)"));
  assert.deepEqual(answered.map((option) => option.split(":")[0]), ["classify", "rate"]);
  await page.keyboard.press("Escape");
  await page.click("#models-open");
  assert.match(await page.textContent("#models .beyond"), /Every other function is refused/);
  await page.keyboard.press("Escape");
}

/** Two machines with one sheet, and one of them away. */
async function together(first, second) {
  await fromFile(first, "#new");
  await type(first, "A1", "typed here");
  await fromFile(first, "#rename");
  await first.keyboard.type("Ours");
  await first.keyboard.press("Enter");
  await kept(first);
  await second.goto(address);
  await second.locator("#gallery-books button", { hasText: /^Ours$/ }).click();
  await shows(second, "A1", "typed here");
  assert.equal(await second.locator("#gallery").isVisible(), false);
  const there = await names(second);
  assert.equal(new Set(there).size, there.length, `the empty one that the page opened with is gone: ${there}`);
  await type(second, "B1", "typed there");
  await shows(first, "B1", "typed there");
  await told(first, /"Ours" was changed elsewhere/);

  // Neither hears of the other until both have typed.
  await kept(second);
  second.mayFail = AWAY;
  await second.context().setOffline(true);
  await type(second, "A1", "offline");
  await until("it is said", async () =>
    /Kept in this browser only: the server cannot be reached/.test(await second.textContent("#kept")));
  await type(first, "A1", "online");
  await kept(first);
  await second.context().setOffline(false);
  await until("the one that comes second keeps a copy", async () => (await names(second)).includes("Ours (copy)"));
  await told(second, /"Ours" was changed elsewhere too: what you did here goes on as "Ours \(copy\)"/);
  await shows(second, "A1", "offline");
  await open(second, "Ours");
  await shows(second, "A1", "online");
  await open(first, "Ours (copy)");
  await shows(first, "A1", "offline");
  second.mayFail = undefined;
  console.log("- two machines: each saw the other's edits, and where both changed a sheet both were kept");
}

/** Has two machines change A1 of a sheet, the second without hearing of the first. */
async function diverge(first, second, sheet) {
  await open(first, sheet);
  await open(second, sheet);
  await kept(second);
  second.mayFail = AWAY;
  await second.context().setOffline(true);
  await type(second, "A1", "mine");
  await until("it is in the browser", () => second.evaluate(() => document.body.dataset.saved === "yes"));
  await type(first, "A1", "theirs");
  await kept(first);
}

/** Lets the second hear, which goes on with a copy. */
async function meet(second, sheet) {
  await second.context().setOffline(false);
  await until("what was done here goes on under another name", async () =>
    (await second.evaluate(() => document.querySelector("#sheets").selectedOptions[0]?.text)).startsWith(`${sheet} (copy`));
  await shows(second, "A1", "mine");
}

/** Letters that are typed while and after the other machine's version is put in their sheet's place: where they were typed. */
async function late(first, second) {
  const sheet = "Ours (copy)";
  await diverge(first, second, sheet);
  // The page tells other tabs when it goes on as its copy.
  await second.evaluate(() => {
    window.typed = (words) => {
      const bar = document.querySelector("#formula");
      bar.focus();
      bar.value = words;
      bar.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
    };
    const heard = new BroadcastChannel("relserve-sheets");
    heard.onmessage = () => {
      heard.close();
      window.typed("late");
    };
  });
  await meet(second, sheet);
  // In the copy that the page made, or in another that its own write made.
  await shows(second, "A2", "late");
  await open(second, sheet);
  await shows(second, "A1", "theirs");

  await type(first, "A1", "");
  await kept(first);
  await shows(second, "A1", "");
  await diverge(first, second, sheet);
  await meet(second, sheet);
  await second.evaluate(() => window.typed("later"));
  await shows(second, "A2", "later");
  await shows(second, "A1", "mine");
  await kept(second);
  await open(second, sheet);
  await shows(second, "A1", "theirs");
  second.mayFail = undefined;
  console.log("- letters typed while and after the other machine's version came are where they were typed");
}

/** The page goes right after the last letter. */
async function leave(first, second) {
  await open(first, "Ours");
  await shows(first, "A1", "online");
  await type(first, "C1", "the last letters");
  await first.goto("about:blank");
  await first.goto(address);
  await open(first, "Ours");
  await shows(first, "C1", "the last letters");
  await open(second, "Ours");
  await shows(second, "C1", "the last letters");
  console.log("- the last letters before the page went are there, here and on the other machine");
}

/** What a browser kept before workbooks were on the server: sheets without a version. */
async function adopt(second, key) {
  const page = await machine();
  // A page of the same address that opens no database.
  await page.goto(`${address}/addins`);
  await page.evaluate((kept) => new Promise((then, fail) => {
    localStorage.setItem("relserve-key", kept);
    const opening = indexedDB.open("relserve", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("sheets", { keyPath: "id" });
    opening.onerror = fail;
    opening.onsuccess = () => {
      const writing = opening.result.transaction("sheets", "readwrite");
      writing.objectStore("sheets").put({
        id: "0123456789abcdef", name: "From before", rows: [["kept", "=1+1"]], widths: [90], usage: { calls: 3 }, updated: 1,
      });
      writing.oncomplete = () => {
        opening.result.close();
        then();
      };
    };
  }), key);
  await page.goto(address);
  await open(page, "From before");
  await shows(page, "A1", "kept");
  await shows(page, "B1", "2");
  await open(second, "From before");
  await shows(second, "B1", "2");
  await page.context().close();
  console.log("- a sheet that a browser kept by itself before is open there, and on the other machine");
}

/** An older version of the open sheet, and back to what was there before. */
async function goBack(first, second) {
  await open(first, "Ours");
  await open(second, "Ours");
  await kept(first);
  const back = async () => {
    await first.click("#share");
    await first.locator("#share-versions button").first().click();
    await first.waitForSelector("#share-dialog[open]", { state: "detached" });
  };
  await back();
  await shows(first, "C1", "");
  await shows(second, "C1", "");
  await shows(first, "A1", "online");
  await kept(first);
  await back();
  await shows(first, "C1", "the last letters");
  await shows(second, "C1", "the last letters");
  console.log("- an older version came back, and then what was there before it");
}

/** The page of the add-ins. */
async function addIns(page) {
  await page.click("text=Add-ins");
  await page.waitForURL(`${address}/addins`);
  const pictures = await page.locator("main img").evaluateAll((all) => all.map((one) => one.naturalWidth));
  assert.equal(pictures.filter((width) => width > 0).length, 9, `${pictures}`);
  assert.match(await page.textContent("body"), new RegExp(address));
  await page.screenshot({ path: join(ARTIFACTS, "12-addins.png"), fullPage: true });
  assert.match(await page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue("--paper")), /light-dark/, "it has the page's tokens");
  await looks({ page, shot: (name) => shot(page, name) }, "32-addins", "body");
  console.log("- the add-ins' page has its pictures and this server's address");
}

/** A link for readers, and its end. */
async function share(page) {
  await shareAtOnce(page);
  await page.click("#add-tab");
  await type(page, "B2", "=20+3");
  await page.getByRole("tab", { name: "Sheet1", exact: true }).click();
  await shows(page, "A1", "online");
  await kept(page);
  await page.click("#share");
  await page.click("#share-make");
  await until("a link is made", async () => (await page.inputValue("#share-link")) !== "");
  await shot(page, "10-share");
  const link = await page.inputValue("#share-link");
  await page.keyboard.press("Escape");
  const reader = await machine();
  await reader.goto(link);
  await reader.waitForSelector("#shared table");
  await shot(reader, "13-shared");
  await looks({ page: reader, shot: (name) => shot(reader, name) }, "33-shared", "body");
  const cells = await reader.locator("#shared tbody tr").first().locator("td").allTextContents();
  assert.deepEqual(cells, ["online", "typed there", "the last letters"]);
  const second = await reader.locator("#shared table").nth(1).locator("tbody td").allTextContents();
  assert.deepEqual(second, ["", "", "", "23"], "the second sheet, as it was shown");
  assert.equal(await reader.locator("header nav:visible, header button:visible").count(), 0, "nothing to go to");
  assert.equal(await reader.locator("#shared input, #shared [contenteditable], #sheet:visible").count(), 0, "nothing can be typed");
  await page.click("#share");
  await page.click("#share-links button");
  await until("the link has ended", async () => /No link/.test(await page.textContent("#share-links")));
  await page.keyboard.press("Escape");
  reader.mayFail = /v1\/shared/;
  await reader.reload();
  await until("it says so", async () => /The link does not work: it was ended, or has expired\./.test(await reader.textContent("#shared")));
  await reader.context().close();
  console.log("- a link showed the sheet to a reader until it was ended");
}

/** An empty workbook says what to do, and one that was typed a moment ago is saved before there is a link. */
async function shareAtOnce(page) {
  const open = await page.inputValue("#sheets");
  await fromFile(page, "#new");
  await page.click("#share");
  await until("it says what to do", async () => /This workbook is empty\. Type something/.test(await page.textContent("#share-links")));
  assert.equal(await page.textContent("#share-problem"), "");
  assert.equal(await page.isDisabled("#share-make"), true);
  await page.keyboard.press("Escape");
  await cellOf(page, "A1").click();
  await page.keyboard.type("just now");
  await page.keyboard.press("Enter");
  await page.click("#share");
  await page.click("#share-make");
  await until("a link is made", async () => (await page.inputValue("#share-link")) !== "");
  await page.click("#share-copy");
  await until("it is copied", async () => (await page.textContent("#share-copy")) === "Copied");
  const reader = await machine();
  await reader.goto(await page.inputValue("#share-link"));
  assert.equal(await reader.locator("#shared tbody td").first().textContent(), "just now");
  await reader.context().close();
  await page.keyboard.press("Escape");
  await fromFile(page, "#delete");
  await page.click("dialog[open] .main");
  await page.selectOption("#sheets", open);
}

/** Somebody who had the page open already opens an operator's invitation. */
async function invited(tenant, link) {
  const page = await machine();
  page.mayFail = /v1\/models/;
  await page.goto(address);
  await page.waitForSelector("#login[open]");
  await page.evaluate((to) => location.assign(to), link);
  await until("the link signs in", async () => (await page.textContent("#tenant")) === tenant);
  assert.equal(await page.evaluate(() => location.href), `${address}/`);
  assert.equal(await page.locator("#view-admin:visible").count(), 0, "a member is no operator");
  assert.deepEqual((await names(page)).filter((name) => name.startsWith("Ours")), [], "another tenant's sheets are not there");
  await page.context().close();
}

/** More keys than a page has: one page is shown at a time, by keys, and a tenant's alone where they are looked for. */
async function turnPages(page, tenant) {
  const make = (route, body) => page.evaluate(async ([path, wanted]) => {
    const headers = { Authorization: `Bearer ${localStorage.getItem("relserve-key")}`, "Content-Type": "application/json" };
    const reply = await fetch(path, { method: "POST", headers, body: JSON.stringify(wanted) });
    if (!reply.ok) throw new Error(await reply.text());
  }, [route, body]);
  const other = `${tenant}-many`;
  await make("v1/tenants", { name: other });
  for (let at = 1; at <= 130; at += 1) await make("v1/keys", { name: `desk ${at}`, tenant: other });
  const section = page.getByRole("region", { name: "Keys", exact: true });
  const rows = section.locator("tbody tr");
  const told = (words) => until(`it says ${words}`, async () => words.test(await section.locator("p[role=status]").textContent()));
  const [older, newer] = ["Older keys", "Newer keys"].map((name) => section.getByRole("button", { name }));
  // The page looks by itself now and then, while they are made too.
  await until("the last one stands first", async () => /desk 130/.test(await rows.first().textContent()));
  await told(/^Page 1: 100 keys are shown, the newest first\. Older ones are on the next page\.$/);
  assert.equal(await rows.count(), 100);
  assert.equal(await newer.isDisabled(), true);
  await older.focus();
  await page.keyboard.press("Enter");
  await told(/^Page 2: \d+ keys are shown, the newest first\. There are no older ones\.$/);
  assert.match(await rows.first().textContent(), /desk 30/);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Newer keys", "the focus goes to the way that is left");
  await looks({ page, shot: (name) => shot(page, name) }, "35-admin-pages", "#admin");
  await page.keyboard.press("Enter");
  await told(/^Page 1: 100 keys/);
  const sought = section.getByLabel("Find keys by how their names or tenants begin");
  await sought.fill(`${other.slice(0, -2)}`);
  await page.keyboard.press("Enter");
  await told(new RegExp(`^Found for "${other.slice(0, -2)}"\\. Page 1: 100 keys are shown`));
  await sought.fill("desk 13");
  await page.keyboard.press("Enter");
  await told(/^Found for "desk 13"\. Page 1: \d+ keys are shown, the newest first\. There are no older ones\.$/);
  await sought.fill("nobody");
  await page.keyboard.press("Enter");
  await told(/^No name begins with "nobody"\.$/);
  await sought.fill("");
  await told(/^Page 1: 100 keys/);
  const tenants = page.getByRole("region", { name: "Tenants" });
  await tenants.getByLabel("Find tenants by how their names begin").fill(other.slice(0, -1));
  await page.keyboard.press("Enter");
  await until("the tenant stands there alone", async () => /^Found for "[^"]*"\. Page 1: 1 tenant is shown/.test(await tenants.locator("p[role=status]").textContent()));
  assert.deepEqual(await tenants.locator("tbody tr > :is(:nth-child(1), :nth-child(3))").allTextContents(), [other, "130"]);
}

/** The operators' page by hand. */
async function administer(page) {
  await page.click("#view-admin");
  const tenant = `acme-${Date.now().toString(36)}`;
  await page.fill("#admin input[name=tenant]", tenant);
  await page.keyboard.press("Enter");
  const weight = page.getByLabel(`Weight of ${tenant}`);
  await weight.fill("2.5");
  await weight.press("Tab");
  await until("the weight is set", async () => (await page.getByLabel(`Weight of ${tenant}`).inputValue()) === "2.5");
  const limits = page.getByRole("button", { name: `Set limits: ${tenant}` });
  await limits.click();
  const refuses = async (name, label, text, said) => {
    await page.getByLabel(label).fill(text);
    await page.keyboard.press("Enter");
    await until("the field says what it takes", async () => said.test(await page.textContent(`#limit-${name}-problem`)));
    assert.equal(await page.getAttribute(`#limit-${name}`, "aria-invalid"), "true");
    await page.getByLabel(label).fill("");
  };
  await refuses("day_tokens", "Tokens a day", "1.000", /such as 2,000,000/);
  await refuses("models", "Models, with commas", ",", /names of models/);
  page.mayFail = /v1\/tenants/;
  await refuses("models", "Models, with commas", "no such model", /limits\.models.*served: /);
  page.mayFail = undefined;
  await page.getByLabel("Tokens a day").fill("5,000");
  await page.keyboard.press("Enter");
  await until("the limit is shown", () => page.locator("tr", { hasText: tenant }).filter({ hasText: "0 of 5,000 tokens today" }).count());
  await until("it is proposed", () => page.evaluate((name) => Array.from(document.querySelector("#admin-tenants").options).some(({ value }) => value === name), tenant));
  await until("the operator's own tenant stands there", async () => (await page.inputValue("#admin input[name=owner]")) !== "");
  await page.fill("#admin input[name=owner]", tenant);
  await page.fill("#admin input[name=name]", "laptop");
  await page.keyboard.press("Enter");
  await until("a key is told", async () => /^rs-[0-9a-f]{64}$/.test(await page.inputValue("#admin-secret")));
  const revoke = page.getByRole("button", { name: /^Revoke key \d+, laptop$/ }).first();
  assert.match(await page.locator("tr", { hasText: "laptop" }).first().textContent(), /All that its tenant may/);
  await revoke.focus();
  await page.keyboard.press("Enter");
  const question = page.getByRole("dialog", { name: new RegExp(`^Revoke key \\d+, "laptop", of the tenant "${tenant}"\\?$`) });
  await question.waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Cancel", "Enter revokes nothing");
  await page.keyboard.press("Escape");
  await until("it is asked no more", async () => (await question.count()) === 0);
  assert.match(await page.evaluate(() => document.activeElement.ariaLabel ?? ""), /^Revoke key/, "the focus is where it was");
  await page.keyboard.press("Enter");
  await question.getByRole("button", { name: "Revoke" }).click();
  await until("it is revoked", () => page.locator("tr", { hasText: tenant }).filter({ hasText: "revoked" }).count());
  await page.fill("#admin input[name=guests]", tenant);
  await page.click("text=Invite by a link");
  await until("a link is told", async () => /#sign-in=si-/.test(await page.inputValue("#admin-secret")));
  await page.selectOption("#admin select[name=by]", "route");
  await until("usage is shown", async () => /Nothing was used|cells/.test(await page.locator("#admin section", { hasText: "By day" }).innerText()));
  assert.match(await page.locator("#admin").textContent(), /KV blocks in use/);
  await shot(page, "11-admin");
  await looks({ page, shot: (name) => shot(page, name) }, "31-admin", "body");
  assert.doesNotMatch(await page.textContent("#admin"), /0\.0 MiB/, "a size has the unit that fits");
  await invited(tenant, await page.inputValue("#admin-secret"));
  await turnPages(page, tenant);
  console.log("- the operators' page: a tenant, its weight, a key made and revoked, an invitation");
}

async function run() {
  mkdirSync(ARTIFACTS, { recursive: true });
  const first = await signIn();
  const key = await first.evaluate(() => localStorage.getItem("relserve-key"));
  const second = await machine();
  await second.addInitScript((value) => localStorage.setItem("relserve-key", value), key);
  await together(first, second);
  await late(first, second);
  await leave(first, second);
  await adopt(second, key);
  await goBack(first, second);
  await share(first);
  await administer(first);
  await addIns(first);
}

await conclude("people", problems, run, () => browser.close());
