// Calls of the server's JSON routes, with the key that the page has.

import { RequestError, headers, replyError } from "relserve-client/wire";

import { storedKey } from "../store/key";
import { t } from "../text";

/** What a call may say beside its body. */
export interface CallOptions {
  body?: unknown;
  /** Another key than the page's. */
  key?: string;
  /** The call goes on when the page goes. Browsers take 64 KiB at most of all such calls. */
  keepalive?: boolean;
}

/** Calls a route; throws a `RequestError` in the server's words where it refuses. */
export async function call<T>(method: "GET" | "POST" | "DELETE", path: string, options: CallOptions = {}): Promise<T> {
  const { body, key = storedKey(), keepalive = false } = options;
  const request: RequestInit = { method, headers: headers(key), keepalive };
  if (body !== undefined) {
    request.headers = { "Content-Type": "application/json", ...headers(key) };
    request.body = JSON.stringify(body);
  }
  const response = await fetch(path, request).catch(() => {
    throw new RequestError(t.unreachable, 0, undefined);
  });
  if (!response.ok) throw await replyError(response);
  return (await response.json()) as T;
}

/** A list as the server sends it. */
export interface List<T> {
  data: T[];
}
