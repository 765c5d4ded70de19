// The page in German, in a browser that asks for it. First as people read it: some texts, the look of the dialogs, what axe
// says, another language and back. Then with each message between marks: what stands on the page without marks, and is no
// data, is a text that no language can reach.

import assert from "node:assert/strict";
import { join } from "node:path";

import { chromium } from "playwright-core";

import { accessible } from "./axe.mjs";
import { ARTIFACTS, BROWSER, FLAGS, VIEWPORT, cellSelector, until, watch } from "./harness.mjs";

/** Data of the walk. Longer than headers are, so that nothing of it is taken for one. */
const ROWS = ["Das Zimmer war sauber und die Leute freundlich, gern wieder.", "Kalt, laut, teuer.", "Das Frühstück war gut."];
const MANY = 1_200;
const MENU = "body > .menu:not([hidden])";

/** What is data, wherever it stands: cells and what is typed, prompts, code, samples, names of models, tenants, policies. */
const DATA = [
  "#grid td", "#grid th", "#grid thead", "#formula", "#title", "#sheets", "#charts h2", "pre", "code", "body [lang]", "#model", "#tenant", ".chip",
  "#column-over", "#column-name", "#column-preview td", "#filter-list span:first-of-type", "#admin-secret", "#share-link", "#shared h2", "#shared td", "#shared th",
  "#functions-list dt", "#functions-ordinary dt", ".brand", ".chart", "section[aria-labelledby=live-shares] .track",
].join(", ");
/** What the server says, word for word, and what relQueries are called by their data, by the column of a table. */
const SERVERS = [
  ["live-queue", [2, 3, 6, 7]], ["live-bars", [1, 2]], ["live-memory", [1]], ["live-shares", [1]], ["live-what-if", [1]],
  ["admin-0", [1]], ["admin-1", [2, 3, 4]], ["admin-2", [1]], ["admin-3", [1, 2, 3, 7]],
].flatMap(([section, columns]) => columns.map((at) => `section[aria-labelledby=${section}] tbody td:nth-child(${at})`)).join(", ");
/** Units, functions in front of what they do, and settings. */
const WORDS = /µs\b|\b(ms|min|kB|[KMG]iB|rs|RelServe|(classify|extract|summarize|translate|tag|format|edit|rate)(?=: )|workbooks\.\w+|sql\.\w+)\b/g;

/** Puts each message of the language's file between marks. */
async function marked(context) {
  await context.route(/\/assets\/de-[^/]*\.js$/, (route) => {
    const file = new URL(route.request().url()).pathname.split("/").pop();
    return route.fulfill({ contentType: "text/javascript", body: `
      import real from "./${file}?real";
      const mark = (value) => typeof value === "string" ? "⟦" + value + "⟧" : typeof value === "function" ? (...given) => mark(value(...given))
        : Array.isArray(value) ? value.map(mark) : Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, mark(inner)]));
      export default (formats) => mark(real(formats));` });
  });
}

/** The texts and names of what is seen that have no marks around them. */
function unmarked(page) {
  return page.evaluate(([data, servers, words]) => {
    const bare = (text) => {
      let left = text;
      for (let before = ""; before !== left;) [before, left] = [left, left.replace(/⟦[^⟦⟧]*⟧/g, " ")];
      return left.replace(new RegExp(words, "g"), " ");
    };
    const cells = new Set(Array.from(document.querySelectorAll("#grid td"), ({ textContent }) => textContent));
    const found = new Set();
    const note = (element, text, what) => {
      // What is read out of a cell is its name, what is in it, and what there is to say.
      const said = element.id === "spoken" ? text.split(", ").filter((part) => !cells.has(part)).join(", ") : text;
      if (!/\p{L}{2}/u.test(bare(said)) || element.closest(data) || element.closest(servers)) return;
      found.add(`${what} of ${element.localName}${element.id && `#${element.id}`}: ${text}`);
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      // Options of a list, and what is read out alone, are told too.
      // The name of a sheet is data, what is said of its tab is not.
      if (parent.closest("#tabs")) continue;
      const isSeen = parent.checkVisibility() || parent.closest("select")?.checkVisibility();
      if (isSeen) note(parent, node.data, "text");
    }
    for (const name of ["title", "aria-label", "placeholder", "aria-valuetext", "alt"]) {
      for (const element of document.querySelectorAll(`[${name}]`)) if (element.checkVisibility()) note(element, element.getAttribute(name), name);
    }
    return [...found];
  }, [DATA, SERVERS, WORDS.source]);
}

/** Goes through the states of the page; `look` is told each. All is done by places and keys, since words change. */
async function walk({ page, keys, address }, look) {
  const cell = (name) => page.locator(cellSelector(name));
  const settled = () => page.waitForFunction(() => document.querySelectorAll("#grid td.rs-pending").length === 0, undefined, { timeout: 120_000 });
  const type = async (name, text) => {
    await cell(name).click();
    await page.fill("#formula", text);
    await page.press("#formula", "Enter");
  };
  const open = async (press, dialog, state) => {
    await page.click(press);
    await page.waitForSelector(`${dialog}[open]`);
    await look(state, dialog);
    await page.keyboard.press("Escape");
  };
  const menu = async (press, list, state) => {
    await page.click(press);
    await look(state, list);
    await page.keyboard.press("Escape");
  };

  await page.waitForSelector("#login[open]");
  await page.fill("#login-key", "rs-wrong");
  await page.keyboard.press("Enter");
  await until("a wrong key is told", async () => (await page.textContent("#login-error")) !== "");
  await look("login", "#login");
  await page.fill("#login-key", keys.member);
  await page.keyboard.press("Enter");
  await until("somebody is signed in", async () => (await page.textContent("#tenant")) !== "");
  await until("it is on the server", async () => (await page.getAttribute("body", "data-kept")) === "yes");
  await look("gallery", "body");

  await page.locator("#gallery-list button", { hasText: "Support-Tickets" }).click();
  await settled();
  await look("sheet", "body");
  await cell("B3").click();
  await page.click("#inspect");
  await page.waitForSelector("#inspector-prompts pre:not(:empty)");
  await until("the prompt is there", async () => (await page.textContent("#inspector-prompts pre")).length > 5);
  await look("inspector", "#inspector");
  await page.click("#inspector-close");
  await cell("B3").click({ button: "right" });
  await look("menu of a cell", MENU);
  await page.keyboard.press("Escape");
  await menu("#book-menu", "#book-items", "menu of the workbook");
  await menu("#arrange", MENU, "menu of rows and columns");
  await menu("#freeze", MENU, "what stays");
  await page.click("#usage summary");
  await look("usage", "#usage");
  await page.click("#usage summary");
  await page.click("#find-open");
  await page.keyboard.type("e");
  await look("find", "#find");
  await page.click("#find-close");
  await cell("B1").click();
  await open("#filter", "#filter-dialog", "filter");
  await open("#help", "#functions", "functions");
  await page.click("#models-open");
  await page.waitForSelector("#models-known tbody tr");
  await look("models", "#models");
  await page.keyboard.press("Escape");
  await page.click("#share");
  await page.click("#share-make");
  await page.waitForSelector("#share-links button");
  await page.waitForSelector("#share-versions li");
  await look("share", "#share-dialog");
  const link = await page.inputValue("#share-link");
  await page.keyboard.press("Escape");
  await page.click("#book-menu");
  await open("#templates-open", "#templates", "templates");
  await page.selectOption("#format", "own");
  await page.fill("dialog[open] input", '"');
  await page.keyboard.press("Enter");
  await look("number format", "dialog[open]");
  await page.keyboard.press("Escape");
  await cell("B1").click();
  await page.keyboard.press("Control+Space");
  await page.click("#chart");
  await page.waitForSelector("#charts canvas");
  await look("chart", "#charts");
  await page.click("#charts button");
  for (const formula of ["=NOTHING(1)", "=1+", "=1/0", "=FILTER(A1:A3,A1:A2)", "=AI.TRANSLATE(A2)", "=Nowhere!A1", '="a"*2']) {
    await type("F1", formula);
    await cell("F1").click();
    await until("its note is there", async () => (await page.textContent("#note")) !== "");
    await look(`the note of ${formula}`, ".formula");
  }
  await page.click("#add-tab");
  await look("another sheet", "body");
  await page.locator("#tabs button").last().dblclick();
  await page.fill("dialog[open] input", "a/b");
  await page.keyboard.press("Enter");
  await look("name of a sheet", "dialog[open]");
  await page.keyboard.press("Escape");
  await page.click("#book-menu");
  await open("#delete", "dialog", "deleting");

  // A column by the dialog; an arrangement, and what is said of it.
  await page.click("#book-menu");
  await page.click("#new");
  for (const [at, text] of ["Meinung", ...ROWS].entries()) await type(`A${at + 1}`, text);
  await page.click("#add-column");
  await page.selectOption("#column-function", "AI.ASK");
  await look("AI column, a prompt", "#column");
  await page.selectOption("#column-function", "AI.CLASSIFY");
  await page.click("#column button[type=submit]");
  await until("what is missing is told", async () => (await page.textContent("#column-error")) !== "");
  await page.fill("#column input[name=labels]", "gut, schlecht");
  await page.click("#column-try");
  await page.waitForFunction(() => {
    const answers = Array.from(document.querySelectorAll("#column-preview td:last-child"), ({ textContent }) => textContent);
    return answers.length > 0 && answers.every((text) => text !== "…");
  });
  await look("AI column", "#column");
  await page.click("#column button[type=submit]");
  await settled();
  await look("a run that is over", "body");
  await cell("B3").click();
  await page.keyboard.type("geht so");
  await page.keyboard.press("Enter");
  await cell("B3").click();
  await look("an answer typed over", "body");
  await page.click("#undo");
  await look("undone", ".status");

  // More cells than go out without a question.
  const many = Array.from({ length: MANY }, (_, i) => `Zeile ${keys.run}-${i}`);
  await page.setInputFiles("#file", { name: "viele.csv", mimeType: "text/csv", buffer: Buffer.from(many.join("\n")) });
  await until("it is open", async () => (await page.inputValue("#title")) === "viele");
  await look("imported", ".status");
  await type("B1", `=AI.CLASSIFY(A1:A${MANY}, "gut, schlecht")`);
  await page.waitForSelector("#estimate[open]");
  await until("the estimate is there", async () => (await page.locator("#estimate-list dt").count()) > 3);
  await look("estimate", "#estimate");
  await page.click("#estimate-cancel");
  await look("stopped", "body");

  // Steps are told while they happen.
  await page.click("#view-live");
  await page.waitForFunction(() => document.querySelector("#live > [role=status]").textContent !== "");
  await look("live, at first", "#live");
  const calls = many.slice(0, 200).map((text) => ({ function: "classify", args: [text, [["gut"], ["schlecht"]]] }));
  await fetch(`${address}/v1/cells`, {
    method: "POST", headers: { Authorization: `Bearer ${keys.member}`, "Content-Type": "application/json" }, body: JSON.stringify({ calls }),
  });
  await page.waitForFunction(() => document.querySelector("#live-steps [role=option]"));
  await page.focus("#live-steps");
  await page.keyboard.press("End");
  await page.click("#lanes-table summary");
  await page.selectOption("#what-if-policy", "fcfs");
  await page.click("#what-if");
  await page.waitForFunction(() => !document.querySelector("#what-if").disabled && document.querySelector("#what-if-check").textContent !== "", undefined, { timeout: 60_000 });
  await page.click("#what-if-lanes-table summary");
  await look("live", "#live");
  return link;
}

/** What an operator sees, and what somebody with a link. */
async function others({ page, keys, address }, link, look) {
  if (keys.operator) await operating({ page, keys, address }, look);
  await page.goto("about:blank");
  await page.goto(link);
  await page.waitForSelector("#shared table");
  await look("shared", "body");
  await page.goto("about:blank");
  await page.goto(`${address}/#shared=wrong`);
  await page.waitForSelector("#shared [role=alert]");
  await look("a link that does not work", "body");
}

/** The operators' view, with a key of an operator. */
async function operating({ page, keys, address }, look) {
  const made = await fetch(`${address}/v1/keys`, {
    method: "POST", headers: { Authorization: `Bearer ${keys.operator}`, "Content-Type": "application/json" },
    body: JSON.stringify({ name: "Betrieb", tenant: await page.textContent("#tenant"), operator: true }),
  });
  await page.click("#key");
  await page.fill("#login-key", (await made.json()).key);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#view-admin:not([hidden])");
  await page.goto(`${address}/#admin`);
  await page.waitForSelector("#admin tbody tr");
  await until("caches are told", async () => (await page.locator("#admin dl dt").count()) > 3);
  await look("admin", "#admin");
  await page.locator("section[aria-labelledby=admin-0] tbody tr button").first().click();
  await page.waitForSelector("dialog[open] #limits-title");
  await look("limits of a tenant", "dialog[open]");
  await page.keyboard.press("Escape");
}

/** Opens browsers of its own. */
export async function german({ address, problems, keys }, run) {
  const browser = await chromium.launch({ executablePath: BROWSER, headless: true, args: FLAGS });
  // The first question goes without a key, the last with a link that is none.
  const isExpected = (message) => /v1\/(models|shared)$/.test(message.location().url) && /status of 40[14]/.test(message.text());
  const shot = (page, state) => page.screenshot({ path: join(ARTIFACTS, `de-${state.replace(/\W+/g, "-")}.png`) });
  const machine = async (prepare) => {
    const context = await browser.newContext({ locale: "de-DE", viewport: VIEWPORT });
    await prepare?.(context);
    const page = await context.newPage();
    watch(page, address, problems, isExpected);
    await page.goto(address);
    return { page, keys: { ...keys, run }, address };
  };

  // As it is read.
  const read = await machine();
  const { page } = read;
  const seen = new Map();
  const link = await walk(read, async (state, selector) => {
    seen.set(state, await page.locator("body").innerText());
    await shot(page, state);
    if (!state.startsWith("the note")) await accessible(page, selector, `German, ${state}`);
  });
  assert.equal(await page.getAttribute("html", "lang"), "de");
  for (const [state, words] of [
    ["login", /Der Server kennt diesen Schlüssel nicht\./], ["gallery", /Mit einer Aufgabe beginnen.*Support-Tickets/s],
    ["menu of a cell", /Zeile darüber einfügen.*Als Werte behalten.*Erneut fragen: diese Zelle/s], ["AI column", /Kategorien, durch Kommas getrennt/],
    ["inspector", /Prompt, wie er an .* geht: \d+ Token/], ["a run that is over", /3 Zellen in \d+,\d+ s/], ["estimate", /1\.200 Zellen ausführen\?/],
    ["imported", /1200 Zeilen aus viele\.csv gelesen\./], ["live", /unter „Wer zuerst kommt“ [\d,]+ m?s, (ebenso lang|\d+ % (länger|kürzer))/],
  ]) assert.match(seen.get(state), words, state);
  await others(read, link, async (state, selector) => {
    await shot(page, state);
    await accessible(page, selector, `German, ${state}`);
  });
  await page.goto(`${address}/#sheet`);

  // Another language, and it stays chosen.
  await page.selectOption("#language", "en");
  await page.waitForFunction(() => document.documentElement.lang === "en" && document.querySelector("#undo")?.title === "Undo (Ctrl+Z)");
  await page.reload();
  await page.waitForFunction(() => document.querySelector("#language").value === "en");
  await page.selectOption("#language", "de");
  await page.waitForFunction(() => document.querySelector("#undo")?.title === "Rückgängig (Strg+Z)");
  await page.context().close();

  // Between marks.
  const between = await machine(marked);
  const bare = [];
  const check = async (state) => bare.push(...(await unmarked(between.page)).map((text) => `${state}: ${text}`));
  await others(between, await walk(between, check), check);
  await browser.close();
  assert.deepEqual(bare, [], "texts that are in no language's file");
  return `German: ${seen.size} states as they are read, with axe, and all of them with each message between marks`;
}
