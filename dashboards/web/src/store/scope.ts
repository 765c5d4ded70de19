// Whose sheets a browser's stores hold. A browser that signs in to another tenant, or to another server at the same
// address, gets stores of their own: nothing of the one goes to the other.

import { NAME } from "./sheets";

/** The scope whose sheets the first store holds, and the one that was shown last. */
const OWNER = "relserve-scope";
const LAST = "relserve-scope-last";

/** The stores of a scope. */
export interface Stores {
  sheets: string;
  marks: string;
  /** The scope, where one was ever known. */
  scope: string | undefined;
}

/** The stores of a scope; while the server cannot be asked for it, of the one that was shown last. */
export function storesOf(scope: string | undefined, storage: Storage = localStorage): Stores {
  if (scope) storage.setItem(LAST, scope);
  const shown = scope ?? storage.getItem(LAST) ?? undefined;
  const owner = storage.getItem(OWNER);
  if (shown && !owner) storage.setItem(OWNER, shown);
  const isFirst = !shown || !owner || owner === shown;
  return { sheets: isFirst ? NAME : `${NAME}-${shown}`, marks: `relserve-sync-${shown ?? ""}`, scope: shown };
}
