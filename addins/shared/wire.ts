// Calls over the wire. They stream until a deadline; what is not ready then goes on under a ticket that survives a
// broken connection and a restart of the server, and is looked at until it is done. A connection that breaks earlier
// fails the request: it is asked again, and the server's cache has what was finished.

import type { Answer, Call } from "relserve-client/calls";
import type { ServerUsage } from "relserve-client/usage";
import { RequestError, type WireError, headers, readCells, replyError } from "relserve-client/wire";

import { type Cell, answerOf } from "./plan";

/** Where calls go. */
export interface Server {
  /** Without a slash at the end. */
  url: string;
  key: string;
  /** The model that answers; the server's own where none is chosen. */
  model?: string | undefined;
}

/** What talking needs of the world. */
export interface Net {
  fetch: typeof fetch;
  /** Waits; rejects at once when the signal aborts. */
  sleep(milliseconds: number, signal: AbortSignal): Promise<void>;
}

/** The bounds. */
export interface Bounds {
  /** When a stream becomes a ticket. */
  deadlineMs: number;
  /** The first pause between looks at a ticket, and the longest. */
  lookMs: number;
  looksMs: number;
  /** Looks in a row that may fail for want of a connection. */
  failures: number;
}

/** What the add-in uses. */
export const BOUNDS: Bounds = { deadlineMs: 60_000, lookMs: 1_000, looksMs: 10_000, failures: 8 };

/** A server that is silent so long when it is asked whether it is there counts as none. */
const PROBE_MS = 1_250;

/** Whether a server is there, behind whatever proxies stand before it. */
export async function probe(net: Net, url: string): Promise<boolean> {
  try {
    const { status } = await net.fetch(`${url}/healthz`, { cache: "no-store", signal: AbortSignal.timeout(PROBE_MS) });
    return !new RequestError("", status, undefined).isUnreachable;
  } catch {
    return false;
  }
}

interface CellsReply {
  status: string;
  ticket?: string;
  cells?: Cell[];
  usage?: ServerUsage;
  error?: WireError;
}

/** Who is told what comes: each answer once, and any life of the server. */
export interface Listener {
  onCell(index: number, answer: Answer): void;
  onHeard(): void;
}

/** Asks calls. Gives the usage at the end. */
export async function askCells(
  net: Net, server: Server, calls: Call[], signal: AbortSignal, { onCell, onHeard }: Listener, bounds: Bounds = BOUNDS,
): Promise<ServerUsage> {
  const seen = new Set<number>();
  const cell = (index: number, told: Cell) => {
    if (told.pending || seen.has(index)) return;
    seen.add(index);
    onCell(index, answerOf(told));
  };
  const take: Taker = { cell, heard: onHeard };
  let done: CellsReply;
  try {
    done = await stream(net, server, calls, signal, take, bounds);
  } catch (error) {
    if (!(error instanceof RequestError) || ![400, 413].includes(error.status)) throw error;
    // No call of the request makes sense: the formulas' own fault, not an answer that did not come.
    const refused = { error: { message: error.message, type: "invalid_request_error" } };
    calls.forEach((_, index) => cell(index, refused));
    return {};
  }
  if (done.ticket === undefined) return done.usage ?? {};
  return follow(net, server, done.ticket, signal, take, bounds);
}

interface Taker {
  cell(index: number, cell: Cell): void;
  heard(): void;
}

async function stream(
  net: Net, server: Server, calls: Call[], signal: AbortSignal, take: Taker, bounds: Bounds,
): Promise<CellsReply> {
  const body = JSON.stringify({ calls, stream: true, deadline_ms: bounds.deadlineMs, model: server.model });
  const response = await send(net, server.url, "/v1/cells?details=true", {
    method: "POST", headers: { "Content-Type": "application/json", ...headers(server.key) }, body, signal,
  });
  return readCells<CellsReply>(response, signal, (cell) => take.cell(cell.index, cell), take.heard);
}

/** Looks at a ticket until it is over. Nobody waits any more: it is called off, for it would go on by itself. */
async function follow(
  net: Net, server: Server, ticket: string, signal: AbortSignal, take: Taker, bounds: Bounds,
): Promise<ServerUsage> {
  const path = `/v1/cells/${encodeURIComponent(ticket)}`;
  let pause = bounds.lookMs;
  let failures = 0;
  for (;;) {
    try {
      await net.sleep(pause, signal);
      const reply = await look(net, server, `${path}?details=true`, signal);
      failures = 0;
      take.heard();
      reply.cells?.forEach((cell, index) => take.cell(index, cell));
      if (reply.status !== "running") {
        if (reply.status === "completed") return reply.usage ?? {};
        throw new RequestError(reply.error?.message ?? `the request was ${reply.status}`, 500, undefined);
      }
      pause = Math.min(pause * 1.5, bounds.looksMs);
    } catch (error) {
      if (signal.aborted) {
        net.fetch(`${server.url}${path}`, { method: "DELETE", headers: headers(server.key) }).catch(() => undefined);
        throw error;
      }
      // The ticket is gone with the server's store: the calls are asked again.
      if (error instanceof RequestError && error.status === 404) throw new RequestError(error.message, 0, undefined);
      failures += 1;
      if (!(error instanceof RequestError) || !error.again || failures > bounds.failures) throw error;
      pause = error.retryAfter ?? Math.min(pause * 2, bounds.looksMs);
    }
  }
}

async function look(net: Net, { url, key }: Server, path: string, signal: AbortSignal): Promise<CellsReply> {
  const response = await send(net, url, path, { headers: headers(key), signal });
  if (!response.ok) throw await replyError(response);
  return (await response.json().catch(() => {
    throw new RequestError("the connection broke", 0, undefined);
  })) as CellsReply;
}

async function send(net: Net, url: string, path: string, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
  try {
    return await net.fetch(`${url}${path}`, init);
  } catch (error) {
    if (init.signal.aborted) throw error;
    throw new RequestError(`the server at ${url} cannot be reached`, 0, undefined);
  }
}
