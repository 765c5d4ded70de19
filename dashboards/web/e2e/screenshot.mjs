// The picture of the README: the sheet of reviews while its answers come in, of a real server and its model.

import { mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { begin } from "./menus.mjs";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** Answers that are let through before the picture is taken: of the 50 of the sheet. */
const ANSWERS = 38;

/**
 * Fills the sample sheet as far as that, writes the picture to `file` (a path from the root of the repository), and
 * lets the rest through.
 */
export async function screenshot({ page, cell, settled, holdAnswers }, file) {
  const path = resolve(ROOT, file);
  await page.setViewportSize({ width: 1300, height: 680 });
  const release = holdAnswers(ANSWERS);
  await begin(page, "Reviews");
  await page.waitForFunction(
    (count) => document.querySelectorAll("#grid td.rs-ai:not(.rs-pending)").length >= count, ANSWERS, { timeout: 120_000 },
  );
  await cell("B2").click();
  // Neither a field that has the focus nor a cell under the mouse.
  await page.mouse.move(0, 0);
  mkdirSync(dirname(path), { recursive: true });
  await page.screenshot({ path });
  release();
  await settled("B", 2, 51);
  return `the picture of ${ANSWERS} answers is in ${file}`;
}
