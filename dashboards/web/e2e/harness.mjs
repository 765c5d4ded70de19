// What the browser tests share: how the browser is started, what must never happen on a page, and how a test ends.

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";

/** Debian's Chromium, without what it does beside showing the page. */
export const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
export const VIEWPORT = { width: 1280, height: 760 };
/** Where screenshots go. */
export const ARTIFACTS = fileURLToPath(new URL("../artifacts/", import.meta.url));

/** Waits until something is so, as long as it takes up to a minute. */
export async function until(what, isSo) {
  for (const end = Date.now() + 60_000; !(await isSo()); await new Promise((then) => setTimeout(then, 20))) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
  }
}

/** Where a cell of the grid is found in the page. */
export function cellSelector(name) {
  const [, letter, digits] = /^([A-Z])(\d+)$/.exec(name);
  return `#grid td[data-x="${letter.charCodeAt(0) - 65}"][data-y="${Number(digits) - 1}"]`;
}

/** Whether a request goes to another host than the page's. */
export const isElsewhere = (url, address) => !url.startsWith(`${address}/`) && !/^(data|blob|about):/.test(url);

/**
 * Notes in `problems` what must not happen on a page: messages of the console but those that `isExpected`, errors, requests
 * to another host, the browser's own dialogs.
 */
export function watch(page, address, problems, isExpected = () => false) {
  page.on("console", (message) => {
    if (isExpected(message) || !["error", "warning"].includes(message.type())) return;
    problems.push(`console: ${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => problems.push(`page: ${error.message}`));
  page.on("request", (request) => {
    if (isElsewhere(request.url(), address)) problems.push(`another host: ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    problems.push(`a dialog of the browser's own: ${dialog.message()}`);
    return dialog.dismiss();
  });
}

/** Runs a test, has it end by `close` in any case, and ends the process with what came of it. */
export async function conclude(name, problems, run, close, failed = () => undefined) {
  let failure;
  try {
    await run();
    assert.deepEqual(problems, [], "no console errors, no other host");
  } catch (error) {
    failure = error;
    await Promise.resolve(failed()).catch(() => undefined);
  }
  await close();
  if (failure) {
    console.error(failure);
    for (const problem of problems) console.error(problem);
    process.exit(1);
  }
  console.log(`${name}: all passed`);
}
