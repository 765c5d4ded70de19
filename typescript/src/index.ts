/** A typed client of RelServe: the routes of its OpenAPI document, its streams, its errors. */

import createFetchClient, { type Client, type Middleware } from "openapi-fetch";
import type { components, paths } from "./api.js";

export type { components, operations, paths } from "./api.js";

/** A schema of the API by its name: `Schema<"RelQueryReply">`. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export interface Options {
  /** The server's address, without `/v1`. */
  url: string;
  /** An API key; none where the server asks for none. */
  key?: string;
  /** Another way to fetch, such as one that tries again. */
  fetch?: (request: Request) => Promise<Response>;
}

/** A request that the server refused. */
export class RelServeError extends Error {
  override readonly name = "RelServeError";

  constructor(
    readonly status: number,
    /** What the server says of it, where it says something. */
    readonly detail: Schema<"ErrorObject"> | undefined,
    /** Milliseconds after which it may be tried again. */
    readonly retryAfterMs: number | undefined,
  ) {
    super(detail?.message ?? `the server answered ${status}`);
  }
}

/** One event of a stream. */
export interface StreamEvent {
  /** Its name; `message` of those that have none, as OpenAI's. */
  name: string;
  data: unknown;
}

/**
 * A client whose calls are checked against the API: `api.POST("/v1/relqueries", { body })`. What is refused is thrown, as a
 * `RelServeError`.
 */
export function createClient({ url, key, fetch }: Options): Client<paths> {
  const client = createFetchClient<paths>({
    baseUrl: url.replace(/\/+$/, ""),
    ...(key === undefined ? {} : { headers: { Authorization: `Bearer ${key}` } }),
    ...(fetch === undefined ? {} : { fetch }),
  });
  client.use(refusals);
  return client;
}

const refusals: Middleware = {
  async onResponse({ response }) {
    if (response.ok) return undefined;
    const body: unknown = await response.clone().json().catch(() => undefined);
    const detail = (body as Partial<Schema<"ErrorBody">> | undefined)?.error;
    const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
    throw new RelServeError(response.status, detail, Number.isNaN(seconds) ? undefined : seconds * 1_000);
  },
};

/**
 * The events of a reply to a request with `stream: true` and `parseAs: "stream"`. An event `error` is thrown; OpenAI's
 * `[DONE]` ends the stream.
 */
export async function* events(reply: { data?: unknown }): AsyncGenerator<StreamEvent, void, undefined> {
  if (!(reply.data instanceof ReadableStream)) throw new TypeError('no stream: ask with parseAs: "stream"');
  let [name, data] = ["message", [] as string[]];
  for await (const line of lines(reply.data)) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
    else if (line === "" && data.length > 0) {
      const text = data.join("\n");
      if (text === "[DONE]") return;
      const event = { name, data: JSON.parse(text) as unknown };
      const detail = (event.data as Partial<Schema<"ErrorBody">>).error;
      if (detail && (name === "error" || name === "message")) throw new RelServeError(200, detail, undefined);
      yield event;
      [name, data] = ["message", []];
    }
  }
}

async function* lines(bytes: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of bytes as unknown as AsyncIterable<Uint8Array>) {
    const whole = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = whole.pop() ?? "";
    for (const line of whole) yield line.endsWith("\r") ? line.slice(0, -1) : line;
  }
}
