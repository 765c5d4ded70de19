// What a route of the server says to the page's key.

import { headers, replyError } from "relserve-client/wire";

import { storedKey } from "../store/key";

/** The query of a route that tells of one model. */
export const ofModel = (model: string | undefined) => (model === undefined ? "" : `?model=${encodeURIComponent(model)}`);

/** What a route says; nothing where it cannot be asked. */
export async function told<T>(path: string): Promise<T | undefined> {
  try {
    const response = await fetch(path, { headers: headers(storedKey()) });
    return response.ok ? ((await response.json()) as T) : undefined;
  } catch {
    return undefined;
  }
}

/** What a route answers to a body. Throws in the server's words. */
export async function answered<T>(path: string, body: unknown): Promise<T> {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(storedKey()) },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await replyError(response);
  return (await response.json()) as T;
}
