// Small helpers of the edge.

/** An element of the page, of the kind that it is known to be. */
export function element<T extends HTMLElement>(id: string, kind: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} \`${id}\``);
  return found;
}

/** Calls back on a click. */
export function onClick(id: string, then: () => void): void {
  element(id, HTMLButtonElement).addEventListener("click", then);
}

/** Fills a list of terms. */
export function fillList(list: HTMLElement, pairs: readonly (readonly [string, string])[]): void {
  const made = pairs.flatMap(([term, text]) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = term;
    dd.textContent = text;
    return [dt, dd];
  });
  list.replaceChildren(...made);
}

/** Hands a file to its user. */
export function download(name: string, type: string, content: string | Uint8Array): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content as BlobPart], { type }));
  link.download = name;
  link.click();
  // The browser reads the address in its own time.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
