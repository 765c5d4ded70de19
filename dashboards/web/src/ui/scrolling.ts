// What is typed in a cell stays while the grid scrolls. The grid alone ends it with any scroll, and a long formula scrolls its own
// cell: the rest of it would begin another edit, in place of what was typed.

import type jspreadsheet from "jspreadsheet-ce";

/** Has a worksheet end an edit by a scroll only where its row has left the page; `end` takes what is typed. */
export function keepEditing(worksheet: jspreadsheet.WorksheetInstance, end: () => void): void {
  const { content } = worksheet;
  const scrolled = content.onscroll;
  content.onscroll = (event) => {
    const { edition } = worksheet;
    worksheet.edition = null;
    scrolled?.call(content, event);
    worksheet.edition = edition;
  };
  // After the rows were changed for those that are seen.
  content.addEventListener("scroll", () => {
    if (worksheet.edition && !(worksheet.edition[0] as HTMLElement).isConnected) end();
  });
}
