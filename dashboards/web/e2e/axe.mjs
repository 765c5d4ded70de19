// What axe finds wrong with the page as it stands, for people who see, hear or type otherwise.

import assert from "node:assert/strict";

import axe from "axe-core";


/** Expects no violation inside of an element; `state` says what is looked at. */
export async function accessible(page, selector, state) {
  // Past the page's Content-Security-Policy, as a debugger does it.
  await page.evaluate(axe.source);
  const violations = await page.evaluate(async (within) => {
    const found = await window.axe.run(within);
    return found.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html).join(" | ").slice(0, 400)}`);
  }, selector);
  assert.deepEqual(violations, [], state);
}
