// Screenshots of one state: wide and as wide as a phone, in the colours of the day and of the night; and what axe says of it.

import { accessible } from "./axe.mjs";

const WIDE = { width: 1280, height: 760 };
const PHONE = { width: 390, height: 844 };

/** Looks at a state from all sides, without motion between them, and leaves the page as it was. */
export async function looks({ page, shot }, name, selector) {
  for (const [size, viewport] of [["wide", WIDE], ["phone", PHONE]]) {
    await page.setViewportSize(viewport);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
      await shot(`${name}-${size}-${colorScheme}`);
      await accessible(page, selector, `${name}, ${size}, ${colorScheme}`);
    }
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "no-preference" });
  await page.setViewportSize(WIDE);
}
