// Errors in words.

import { RequestError } from "relserve-client/wire";

import { t } from "../text";

/** An error in words: the server's, but where it says of a key in English what the page can say itself. */
export function reason(error: unknown): string {
  if (error instanceof RequestError && error.status === 401) return t.failure.keyEnded;
  return error instanceof Error ? error.message : String(error);
}
