// Lays a language over the texts of `index.html`, which stand there in English: who reads English sees them with the first
// paint.

const ATTRIBUTES = ["title", "aria-label", "placeholder"];

/** Puts each text of a page, and each name of an element, into another language. */
export function layOver(page: HTMLElement, texts: Readonly<Record<string, string>>): void {
  const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode() as Text | null; node; node = walker.nextNode() as Text | null) {
    const own = texts[oneLine(node.data)];
    // The space around it is what parts it from its neighbours.
    if (own !== undefined) node.data = node.data.replace(/\S[^]*\S|\S/, () => own);
  }
  for (const name of ATTRIBUTES) {
    for (const one of page.querySelectorAll(`[${name}]`)) {
      const own = texts[one.getAttribute(name) ?? ""];
      if (own !== undefined) one.setAttribute(name, own);
    }
  }
}

/** A text as it is shown: line ends are spaces. */
function oneLine(text: string): string {
  return text.trim().replace(/\s+/g, " ");
}
