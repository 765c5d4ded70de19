// Lists that come page by page, from the newest entries back: read to their beginning.

/** A page of a list, in the list's order. */
export interface Page<T> {
  data: T[];
  /** What the page before it is asked for by; null: there is none. */
  before: number | null;
}

/** Reads a whole list. What a page fails with is thrown. */
export async function readPages<T>(read: (before: number | undefined) => Promise<Page<T>>): Promise<T[]> {
  const pages: T[][] = [];
  let page = await read(undefined);
  pages.push(page.data);
  while (typeof page.before === "number") {
    page = await read(page.before);
    pages.push(page.data);
  }
  return pages.reverse().flat();
}
