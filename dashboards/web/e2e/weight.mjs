// What the page weighs and how it moves: bytes with gzip, first paint, and the frames of scrolling through 10,000 cells
// while they fill, out of the built page and a server that answers at a fixed pace. Medians of five fresh browsers.
//   npm run weight
// Prints figures and judges none of them: they depend on the machine. Without a GPU the browser also paints with the
// processor, on threads of its own; what the page itself takes of a frame is beside the frames.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { chromium } from "playwright-core";

import { BROWSER, FLAGS, VIEWPORT } from "./harness.mjs";
import { pageServer } from "./page-server.mjs";

const DIST = fileURLToPath(new URL("../dist", import.meta.url));
const RUNS = 5;
const ROWS = 10_000;
/** What a screen shows in a second. */
const FRAMES_PER_SECOND = 60;

/** The middle one. */
export const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];

/** A fresh browser with one page of it, and what closes both. */
export async function fresh() {
  const profile = mkdtempSync(join(tmpdir(), "relserve-weight-"));
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: BROWSER, headless: true, args: FLAGS, viewport: VIEWPORT,
  });
  const page = browser.pages()[0] ?? (await browser.newPage());
  const close = async () => {
    await browser.close();
    rmSync(profile, { recursive: true, force: true });
  };
  return { page, close };
}

/** Milliseconds from the navigation to the first paint with content. */
export const firstPaint = (page) =>
  page.evaluate(() => new Promise((then) => {
    const seen = performance.getEntriesByName("first-contentful-paint")[0];
    if (seen) then(seen.startTime);
    else new PerformanceObserver((list) => then(list.getEntries()[0].startTime)).observe({ type: "paint", buffered: true });
  }));

/** The browser's own counts of what a page's thread did, in milliseconds since it began. */
async function pageTimes(page) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable");
  return async () => {
    const { metrics } = await cdp.send("Performance.getMetrics");
    const ms = (name) => 1_000 * metrics.find((metric) => metric.name === name).value;
    return { script: ms("ScriptDuration"), layout: ms("LayoutDuration") + ms("RecalcStyleDuration"), all: ms("TaskDuration") };
  };
}

/** Turns the wheel over the middle of the page while `until` is open; gives frames a second, the worst frame and long tasks. */
export async function scrolling(page, until) {
  await page.evaluate(() => {
    const state = { frames: [], tasks: [], last: performance.now(), isOver: false };
    window.measured = state;
    new PerformanceObserver((list) => state.tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });
    const frame = (now) => {
      state.frames.push(now - state.last);
      state.last = now;
      if (!state.isOver) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  let isOver = false;
  void until.then(() => {
    isOver = true;
  });
  const times = await pageTimes(page);
  const before = await times();
  const started = Date.now();
  await page.mouse.move(500, 420);
  for (let turn = 0; !isOver; turn += 1) await page.mouse.wheel(0, turn % 400 < 200 ? 120 : -120);
  await until;
  const tookMs = Date.now() - started;
  const after = await times();
  const { frames, tasks } = await page.evaluate(() => {
    window.measured.isOver = true;
    return window.measured;
  });
  const total = frames.reduce((sum, ms) => sum + ms, 0);
  const perFrame = (of) => (after[of] - before[of]) / frames.length;
  return {
    scriptMs: perFrame("script"), layoutMs: perFrame("layout"), pageMs: perFrame("all"),
    tookMs, framesPerSecond: (1_000 * frames.length) / total, worstFrameMs: Math.max(...frames),
    slowFrames: frames.filter((ms) => ms > 34).length / frames.length,
    longTasks: tasks.length, longTasksMs: tasks.reduce((sum, ms) => sum + ms, 0),
  };
}

/** How many cells and grids a screen reader is told of, by the browser's own accessibility tree. */
export async function accessible(page) {
  const { nodes } = await (await page.context().newCDPSession(page)).send("Accessibility.getFullAXTree");
  const of = (role) => nodes.filter((node) => !node.ignored && node.role?.value === role).length;
  return { grid: of("grid"), gridcell: of("gridcell"), nodes: nodes.filter((node) => !node.ignored).length };
}

/** One run of our page. */
export async function once(dist = DIST) {
  const { server, sent, address } = await pageServer(dist);
  const { page, close } = await fresh();
  const refused = [];
  page.on("console", (message) => /Content Security Policy/.test(message.text()) && refused.push(message.text()));
  try {
    await page.goto(address);
    await page.waitForSelector('#grid td[data-x="0"][data-y="0"]');
    const readyMs = await page.evaluate(() => new Promise((then) => {
      requestAnimationFrame(() => requestAnimationFrame(() => then(performance.now())));
    }));
    const paintMs = await firstPaint(page);
    const bytes = [...sent].filter(([path]) => !path.startsWith("/v1/")).reduce((sum, [, size]) => sum + size, 0);
    const lines = Array.from({ length: ROWS }, (_, i) => `Review ${i} is fine`).join("\n");
    const opening = Date.now();
    await page.setInputFiles("#file", { name: "reviews.csv", mimeType: "text/csv", buffer: Buffer.from(lines) });
    await page.waitForFunction(() => document.querySelector("#sheets").selectedOptions[0]?.text === "reviews");
    const openMs = Date.now() - opening;
    const tree = await accessible(page);
    await page.click('#grid td[data-x="1"][data-y="0"]');
    await page.fill("#formula", `=AI.CLASSIFY(A1:A${ROWS}, "good, bad")`);
    await page.press("#formula", "Enter");
    await page.waitForSelector("#estimate[open]");
    await page.click("#estimate-run");
    const filled = page.waitForFunction(() => /^[\d,]+ cells in/.test(document.querySelector("#status").value), undefined, { timeout: 300_000 });
    return { bytes, paintMs, readyMs, openMs, ...tree, ...(await scrolling(page, filled)), refused: refused.length };
  } finally {
    await close();
    server.close();
    server.closeAllConnections();
  }
}

/** The middle of each figure. */
export function medians(runs) {
  return Object.fromEntries(Object.keys(runs[0]).map((key) => [key, median(runs.map((run) => run[key]))]));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const runs = [];
  for (let run = 0; run < RUNS; run += 1) runs.push(await once());
  const of = medians(runs);
  const ms = (value) => `${Math.round(value)} ms`;
  console.log(`page: ${Math.round(of.bytes / 1_000)} kB with gzip; first paint ${ms(of.paintMs)}, grid there ${ms(of.readyMs)}`);
  console.log(`${ROWS.toLocaleString("en")} rows opened in ${ms(of.openMs)}; accessibility tree: ${of.grid} grid, ${of.gridcell} gridcells`);
  console.log(`filling ${ROWS.toLocaleString("en")} cells while scrolling: ${ms(of.tookMs)}, ${of.framesPerSecond.toFixed(1)} frames a second, ` +
    `${(100 * of.slowFrames).toFixed(1)} % of frames over 34 ms, worst ${ms(of.worstFrameMs)}, ${of.longTasks} long tasks of ${ms(of.longTasksMs)} in all`);
  console.log(`of a frame's ${(1_000 / FRAMES_PER_SECOND).toFixed(1)} ms the page's thread took ${of.pageMs.toFixed(1)} ms: ` +
    `JavaScript ${of.scriptMs.toFixed(1)} ms, style and layout ${of.layoutMs.toFixed(1)} ms, the rest painting and input`);
  console.log(`refused by the Content-Security-Policy: ${of.refused}`);
}
