// The scrollbar over many rows, and keys after it.

import assert from "node:assert/strict";

/** Works on the page with a sheet of `rows` rows open. */
export async function scrolling({ page, cell, text, until, shot }, rows) {
  /** The row and the header in the middle of what is seen. */
  const seen = () =>
    page.evaluate(() => {
      const { left, top, height } = document.querySelector("#grid .jss_content").getBoundingClientRect();
      const at = (y) => document.elementFromPoint(left + 120, y);
      return { row: Number(at(top + height / 2)?.closest("tr")?.dataset.y), header: at(top + 8)?.closest("thead") !== null };
    });
  const drag = (share) =>
    page.evaluate((part) => {
      const content = document.querySelector("#grid .jss_content");
      content.scrollTop = part * (content.scrollHeight - content.clientHeight);
      return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    }, share);
  await cell("A1").click();
  const started = Date.now();
  for (const share of [0.5, 0.25, 0.9, 0.1, 0.75]) {
    await drag(share);
    const { row, header } = await seen();
    assert.ok(Math.abs(row - share * rows) < 0.02 * rows, `${share} of the scrollbar is row ${row}`);
    assert.ok(header, "the header stays");
    assert.ok((await page.locator("#grid tbody tr").count()) <= 140, "few rows are in the page");
  }
  const took = (Date.now() - started) / 5;
  await shot("11-scrolled");
  await drag(1);
  assert.match(await text(`A${rows}`), /\S/, "the last row");
  await page.keyboard.press("ArrowDown");
  await until("keys go on from the selected cell", async () => (await page.textContent("#name")) === "A2");
  assert.ok((await seen()).row < 60, "which is seen again");
  await page.keyboard.press("Control+ArrowDown");
  await until("the end is seen", async () => (await seen()).row > rows - 60);
  await page.keyboard.press("Control+ArrowUp");
  await until("the beginning is seen", async () => (await seen()).row < 60);
  for (let i = 0; i < 60; i += 1) await page.keyboard.press("ArrowDown");
  const { row } = await seen();
  const name = await page.textContent("#name");
  assert.ok(Math.abs(row - Number(name.slice(1))) < 30, `${name} is seen around row ${row}`);
  await drag(0.5);
  // What stays in sight stays in the page: only new rows are laid out.
  const came = await page.evaluate(async () => {
    const content = document.querySelector("#grid .jss_content");
    let rows = 0;
    const watching = new MutationObserver((changes) => {
      for (const { addedNodes } of changes) rows += addedNodes.length;
    });
    watching.observe(content.querySelector("tbody.draggable, tbody:not(.rs-frozen)"), { childList: true });
    content.scrollTop += 1_500;
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    watching.disconnect();
    return rows;
  });
  assert.ok(came > 0 && came < 80, `${came} rows came into the page`);
  await page.click("#view-live");
  await page.setViewportSize({ width: 1280, height: 1_900 });
  await page.click("#view-sheet");
  await until("a higher page is full of rows", async () => {
    const there = await page.evaluate(() => {
      const { left, bottom } = document.querySelector("#grid .jss_content").getBoundingClientRect();
      return document.elementFromPoint(left + 120, bottom - 20)?.closest("tr")?.dataset.y;
    });
    return Number(there) > rows / 2;
  });
  await page.setViewportSize({ width: 1280, height: 760 });
  await drag(0);
  return `scrollbar over ${rows} rows: each place shown in ${Math.round(took)} ms`;
}
