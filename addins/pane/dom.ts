// Small helpers of the pane. Text is always text, never markup.

/** An element of the pane, of the kind that it is known to be. */
export function at<T extends HTMLElement>(id: string, kind: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the pane has no ${kind.name} \`${id}\``);
  return found;
}

/** Calls back on a click. */
export function onClick(id: string, then: () => void): void {
  at(id, HTMLButtonElement).addEventListener("click", then);
}

/** An element with attributes and children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string>, ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Sets words where they are others: a live region says again what is set again. */
export function write(target: HTMLElement, words: string): void {
  if (target.textContent !== words) target.textContent = words;
}

/** What went wrong, in words. */
export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
