// What is remembered of a request between two calculations: its answers, or the ticket under which the server
// works on. Named by server, key, model and calls, so another server, key or model finds nothing of it.

import type { Cell } from "../../shared/plan";
import type { ScriptHost } from "./google";
import { CACHE_S } from "./rate-limit";
import type { Settings } from "./settings";

/** What is remembered. */
export type Remembered = { cells: Cell[] } | { ticket: string };

/** Bytes of a value of the cache, a little below what it takes. */
const VALUE_BYTES_MAX = 100_000;

/** The name of a request. */
export function nameOf(host: ScriptHost, { url, key, model }: Settings, calls: string): string {
  return `relserve:${host.digest(`${url}\n${key}\n${model ?? ""}\n${calls}`)}`;
}

/** What is remembered of a request. */
export function recall(host: ScriptHost, name: string): Remembered | undefined {
  const text = host.cache.get(name);
  if (!text) return undefined;
  try {
    return JSON.parse(text) as Remembered;
  } catch {
    return undefined;
  }
}

/** Remembers. Answers too large for the cache are not kept: the server's own cache has them. */
export function remember(host: ScriptHost, name: string, record: Remembered): void {
  const text = JSON.stringify(record);
  if (bytes(text) <= VALUE_BYTES_MAX) host.cache.put(name, text, CACHE_S);
  else host.cache.remove(name);
}

/** Forgets. */
export function forget(host: ScriptHost, name: string): void {
  host.cache.remove(name);
}

/** Bytes of a text in UTF-8. */
function bytes(text: string): number {
  let count = 0;
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    count += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return count;
}
