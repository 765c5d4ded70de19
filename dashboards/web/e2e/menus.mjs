// What stands in menus: the workbook's, and what of the toolbar has left a narrow row.

/** Chooses an entry of the workbook's menu. */
export async function fromFile(page, entry) {
  await page.click("#book-menu");
  await page.click(entry);
}

/** Begins with a template of that name. */
export async function begin(page, name) {
  await fromFile(page, "#templates-open");
  await page.locator("#templates-list").getByRole("button", { name: new RegExp(`^${name} `) }).click();
}

/** Presses a tool, below "More" where the row has no room for it. */
export async function press(page, tool) {
  if (!(await page.isVisible(tool))) await page.click("#more");
  await page.click(tool);
}
