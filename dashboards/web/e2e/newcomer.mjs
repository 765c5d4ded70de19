// A newcomer's path, by mouse: the link of `./run`, the first template, and the first answer on the screen.
//   RELSERVE_SIGN_IN=http://127.0.0.1:8080/#sign-in=si-... npm run newcomer
// prints how long that took in a fresh browser, and ends with 1 where it was more than the limit. The browser test walks
// the same path and prints the same figure, without a limit: what a clock says depends on the machine.

import { pathToFileURL } from "node:url";

import { fresh } from "./weight.mjs";

/** From when the page began to open, in milliseconds, on the built-in model and an idle machine. */
const LIMIT_MS = 5_000;

/** Walks the path; gives the milliseconds by the page's own clock, which begins with the navigation. */
export async function firstAnswer(page, link) {
  await page.goto(link);
  await page.locator("#gallery button.card").first().click();
  const answered = await page.waitForFunction(() => {
    const isAnswer = (cell) => cell.checkVisibility() && cell.textContent !== "" && !cell.matches(".rs-pending, .rs-error");
    return Array.from(document.querySelectorAll("#grid td.rs-ai")).some(isAnswer) && performance.now();
  }, undefined, { polling: "raf" });
  return answered.jsonValue();
}

/** The figure in words. */
export const inWords = (ms) => `first answer ${Math.round(ms)} ms after the page began to open`;

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const link = process.env.RELSERVE_SIGN_IN ?? "";
  if (!link.includes("#sign-in=")) {
    console.error("set RELSERVE_SIGN_IN to a link that `relserve sign-in` prints");
    process.exit(2);
  }
  const { page, close } = await fresh();
  const took = await firstAnswer(page, link).finally(close);
  const isOver = took > LIMIT_MS;
  console.log(`${inWords(took)} (limit ${LIMIT_MS} ms)${isOver ? ": over the limit" : ""}`);
  process.exitCode = isOver ? 1 : 0;
}
