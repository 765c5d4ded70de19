// The pictures of docs/TOUR.md: of a real server and its model, with a table of support tickets as a team has it. Nothing is
// judged but that the states come.
//   RELSERVE_SIGN_IN=$(relserve sign-in) npm run tour
// writes into docs/images, from a server with the built-in model and empty folders; look at them before they are committed.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

import { BROWSER, FLAGS, VIEWPORT, cellSelector, conclude, until } from "./harness.mjs";
import { begin } from "./menus.mjs";
import { proxy } from "./proxy.mjs";

const LINK = process.env.RELSERVE_SIGN_IN ?? "";
const IMAGES = fileURLToPath(new URL("../../../docs/images/", import.meta.url));
const PHONE = { width: 390, height: 760 };
const TICKETS = 3_000;
/** Answers of the column that are there in the picture of a run. */
const ANSWERS = 1_270;

if (!LINK.includes("#sign-in=")) {
  console.error("set RELSERVE_SIGN_IN to a link that `relserve sign-in` prints");
  process.exit(2);
}

let hold;
const between = await proxy(new URL(LINK).origin, (call) => {
  if (call.path !== "/v1/cells" || !hold) return;
  call.hold = hold;
  delete call.headers["accept-encoding"];
});
const { port } = between.address();
const address = `http://127.0.0.1:${port}`;
const browser = await chromium.launch({ executablePath: BROWSER, headless: true, args: FLAGS });
const context = await browser.newContext({ locale: "en-US", viewport: VIEWPORT });
const page = await context.newPage();

/** A picture without a mouse in it. */
async function picture(of, name, options = {}) {
  await of.mouse.move(0, 0);
  await of.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  await of.screenshot({ path: join(IMAGES, `${name}.jpg`), type: "jpeg", quality: 62, animations: "disabled", ...options });
  console.log(`- ${name}.jpg`);
}

const cell = (name, of = page) => of.locator(cellSelector(name));
const settled = (of = page) => until("every cell has its answer", async () => (await of.locator("#grid td.rs-pending").count()) === 0);
const answers = (of) => until("answers are there", async () => (await of.locator("#grid td.rs-ai:not(.rs-pending)").count()) > 0);

async function type(name, text) {
  await cell(name).click();
  await page.fill("#formula", text);
  await page.press("#formula", "Enter");
}

async function importFile(name, lines) {
  await page.setInputFiles("#file", { name, mimeType: "text/csv", buffer: Buffer.from(lines.join("\n")) });
  const title = name.replace(".csv", "");
  await until("it is open", () => page.evaluate((wanted) => document.querySelector("#sheets").selectedOptions[0]?.text === wanted, title));
}

/** Tickets as they come in: each another customer and order. */
function tickets() {
  const says = [
    "The parcel shows delivered, but nothing came", "I was charged twice", "The zip of the jacket broke on the first day",
    "Thank you, it came a day early", "How do I change the address", "The courier left the box in the rain",
    "Please cancel it, I found it cheaper", "The colour is lovely, we ordered two more", "Two of the six glasses were broken",
    "When will it be sent", "The invoice has the wrong company name", "Great help on the phone, problem solved",
  ];
  const shops = ["Berlin", "Lyon", "Porto", "Leeds", "Graz"];
  const line = (i) => `"${says[i % says.length]}, order ${40_120 + 7 * i}",${shops[i % shops.length]}`;
  return ["Ticket,Shop", ...Array.from({ length: TICKETS }, (_, i) => line(i))];
}

/** A column is added by the dialog, run, cut off and goes on. */
async function column() {
  await importFile("Support tickets 2026.csv", tickets());
  await page.click("#add-column");
  await page.selectOption("#column-function", "AI.CLASSIFY");
  await page.selectOption("#column-over", { label: "Ticket" });
  await page.fill('#column input[name="labels"]', "positive, negative");
  await page.fill("#column-name", "Mood");
  await page.click("#column-try");
  await until("five rows are tried", async () => {
    const shown = await page.locator("#column-preview tr").allTextContents();
    return shown.length === 5 && shown.every((row) => !row.includes("…"));
  });
  await picture(page, "ai-column");
  let release;
  const released = new Promise((resolve) => {
    release = resolve;
  });
  hold = { answers: ANSWERS, released };
  await page.locator("#column .main").click();
  await page.waitForSelector("#estimate[open]");
  await until("the costs are there", async () => /at most [\d.]+ s/.test(await page.textContent("#estimate-list")));
  await picture(page, "estimate");
  await page.click("#estimate-run");
  await until("so many answers", async () => (await page.textContent("#run-left")).startsWith(`${ANSWERS.toLocaleString("en")} of `));
  await scrollTo(ANSWERS - 9);
  await picture(page, "running");
  await new Promise((then) => {
    between.close(then);
    between.closeAllConnections();
  });
  await until("it says so", async () => /Reconnecting/.test(await page.textContent("#status")));
  await picture(page, "reconnecting");
  hold = undefined;
  release();
  await new Promise((then) => between.listen(port, "127.0.0.1", then));
  await until("it is done", async () => /^[\d,]+ cells in/.test(await page.textContent("#status")));
}

/** Rows around one are shown. */
async function scrollTo(row) {
  await page.evaluate((number) => {
    const content = document.querySelector("#grid .jss_content");
    const height = document.querySelector("#grid tbody tr").getBoundingClientRect().height;
    content.scrollTop = (number - 12) * height;
  }, row);
  await until("they are painted", () => cell(`C${row}`).count());
}

async function inspector() {
  await begin(page, "Reviews");
  await settled();
  await cell("B4").click();
  await page.keyboard.press("Control+i");
  await page.locator("#inspector").waitFor();
  await until("the prompt is there", async () => (await page.locator("#inspector-prompts pre").count()) > 0);
  await cell("B4").click();
  await picture(page, "inspector");
  await page.click("#inspector-close");
}

/** On a phone, and in German. */
async function elsewhere() {
  const phone = await context.newPage();
  await phone.setViewportSize(PHONE);
  await phone.goto(address);
  await phone.waitForFunction(() => document.querySelector("#model").textContent !== "");
  await begin(phone, "Support tickets");
  await answers(phone);
  await settled(phone);
  await cell("B2", phone).click();
  await picture(phone, "phone");
  await phone.close();
  await page.selectOption("#language", "de");
  await page.waitForFunction(() => document.documentElement.lang === "de");
  // The page is loaded anew, and its grid with it.
  await answers(page);
  await settled();
  await picture(page, "german");
  await page.selectOption("#language", "en");
  await page.waitForFunction(() => document.documentElement.lang === "en");
}

async function analyst() {
  const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep"];
  const rows = months.map((_, i) => [`2026-0${i + 1}-01`, 41_200 + 2_750 * i + 900 * (i % 3), 30_400 + 1_900 * i - 700 * (i % 4)].join(","));
  await importFile("Revenue.csv", ["Month,Online,Shops,Total", ...rows.map((row, i) => `${row},=B${i + 2}+C${i + 2}`)]);
  for (const [letter, format] of [["A", "Date, day first"], ["B", "Number"], ["C", "Number"], ["D", "Number"]]) {
    await page.locator(`#grid thead td[data-x="${letter.charCodeAt(0) - 65}"]`).click();
    await page.selectOption("#format", { label: format });
  }
  await cell("A1").click();
  await page.click("#freeze");
  await page.getByRole("menuitem", { name: "First row" }).click();
  await page.click("#add-tab");
  await page.getByRole("tab", { name: "Sheet1", exact: true }).click();
  await cell("A1").click();
  await page.keyboard.down("Shift");
  for (const key of ["ArrowRight", "ArrowRight", ...Array(9).fill("ArrowDown")]) await page.keyboard.press(key);
  await page.keyboard.up("Shift");
  await page.click("#chart");
  await until("the chart is drawn", async () => (await page.locator("#charts .chart").getAttribute("data-drawn")) === "yes");
  await picture(page, "analyst");
}

/** Two small columns come while a large one runs. */
async function live() {
  const other = await context.newPage();
  await other.goto(address);
  await other.waitForFunction(() => document.querySelector("#model").textContent !== "");
  await page.selectOption("#sheets", { label: "Support tickets 2026" });
  await type("D1", "Urgency");
  await type("D2", `=AI.RATE(A2:A${TICKETS + 1})`);
  await page.waitForSelector("#estimate[open]");
  await page.click("#estimate-run");
  await begin(other, "Leads");
  await answers(other);
  await settled(other);
  await begin(other, "Support tickets");
  await settled(other);
  await other.click("#view-live");
  await other.waitForSelector("#live .lanes canvas");
  await until("it was decided", async () => (await other.locator("#decisions li").count()) > 1);
  await until("the column is over", async () => /^[\d,]+ cells in/.test(await page.textContent("#status")));
  await other.setViewportSize({ width: 1280, height: 1_000 });
  await picture(other, "live");
  await other.close();
}

async function admin() {
  await page.click("#view-admin");
  for (const [tenant, weight] of [["finance", "2"], ["support", "1"]]) {
    await page.fill("#admin input[name=tenant]", tenant);
    await page.keyboard.press("Enter");
    const field = page.getByLabel(`Weight of ${tenant}`);
    await field.fill(weight);
    await field.press("Tab");
  }
  await page.fill("#admin input[name=owner]", "finance");
  await page.fill("#admin input[name=name]", "Ada's laptop");
  await page.keyboard.press("Enter");
  await until("a key is told", async () => /rs-[0-9a-f]{64}/.test(await page.inputValue("#admin-secret")));
  await page.getByRole("button", { name: "Invite by a link" }).click();
  await until("a link is told", async () => /#sign-in=si-/.test(await page.inputValue("#admin-secret")));
  await picture(page, "admin");
}

async function run() {
  mkdirSync(IMAGES, { recursive: true });
  await page.goto(`${address}/${new URL(LINK).hash}`);
  await page.locator("#gallery button.card").first().waitFor();
  await picture(page, "templates");
  await column();
  await inspector();
  await elsewhere();
  await analyst();
  await live();
  await admin();
  await page.goto(`${address}/addins`);
  await picture(page, "add-ins", { fullPage: true });
}

const close = async () => {
  await browser.close();
  between.close();
  between.closeAllConnections();
};
await conclude("tour", [], run, close);
