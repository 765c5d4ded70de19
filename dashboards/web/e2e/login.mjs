// The key dialog by real keys and the real clipboard: what is pasted and pressed in it belongs to it, not to the grid behind.

import assert from "node:assert/strict";

/** Works on a page that has just opened and asks for a key; leaves it logged in. */
export async function loggingIn({ page, browser, address, cell, text, shot, until, picksOnly }, key) {
  await page.waitForSelector("#login[open]");
  // The grid is there behind the dialog, made after it.
  await cell("A1").waitFor();
  await until("a cell is selected behind the dialog", async () => (await page.textContent("#name")) === "A1");
  await browser.grantPermissions(["clipboard-read", "clipboard-write"], { origin: address });
  await page.evaluate((copied) => navigator.clipboard.writeText(copied), key);
  const inGrid = () => page.locator("#grid tbody td[data-x]").allTextContents();
  const isUntouched = async (what) => {
    assert.ok((await inGrid()).every((content) => content === ""), `${what} leaves the cells alone`);
    assert.equal(await page.textContent("#name"), "A1", `${what} leaves the selection alone`);
  };

  await page.keyboard.press("Control+v");
  await until("a pasted key is in the dialog", async () => (await page.inputValue("#login-key")) === key);
  await isUntouched("a paste");
  await shot("1-login");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Delete");
  await page.keyboard.type("rs-wrong");
  await page.keyboard.press("Enter");
  await until("a wrong key is told", async () => /does not know this key/.test(await page.textContent("#login-error")));
  await isUntouched("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("dialog[open]").count(), 0, "Escape closes it");
  await isUntouched("Escape");
  await until("the grid has the keys", () => page.evaluate(() => document.activeElement.closest("#grid") !== null));
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.textContent("#name"), "A2", "then the keys are the grid's");
  await page.keyboard.press("ArrowUp");

  await page.click("#key");
  await page.click("#login-remember");
  await page.click("#login-key");
  await page.keyboard.press("Control+v");
  await until("the key is pasted", async () => (await page.inputValue("#login-key")) === key);
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#model").textContent !== "");
  const isDemo = await picksOnly();
  assert.equal(await page.locator("#gallery .beyond").first().isVisible(), isDemo, "what the demo model cannot do is told from the start");
  await page.click("#key");
  await until("the dialog says who is signed in", async () => /^This browser is signed in as \S/.test(await page.textContent("#login-who")));
  assert.deepEqual([await page.textContent("#login-title"), await page.textContent("#login-ok")], ["You are signed in", "Use this key"]);
  assert.equal(await page.locator("#login-how").isVisible(), false, "and how one signs in is not told again");
  await page.keyboard.press("Escape");
  await isUntouched("logging in");
  assert.equal(await text("A1"), "");
  return "a key was pasted, refused, escaped and taken in the dialog; no cell saw it";
}
