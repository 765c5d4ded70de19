// Calls to the server and answers back, within one execution of a custom function. Apps Script waits for a whole
// reply (there are no streams) and kills a custom function after 30 seconds, so every request carries what is left
// of 25 seconds as its deadline. What is not ready by then goes on under a ticket, which the next calculation finds.

import { type Answer, type Call, keyOf } from "relserve-client/calls";

import { type Cell, errorOf } from "../../shared/plan";
import type { HttpReply, HttpRequest, ScriptHost } from "./google";
import * as rateLimit from "./rate-limit";
import * as requestCache from "./request-cache";
import type { Settings } from "./settings";

/** The bounds. */
export interface Bounds {
  /** How long a function may work; 5 seconds remain for the way there and back. */
  workMs: number;
  /** A request with less time than this is not sent. */
  leastMs: number;
  /** The pause between two looks at a ticket. */
  lookMs: number;
  /** Calls of a request (the server takes 20,000), and characters of its calls (the server takes 16 MiB). */
  calls: number;
  characters: number;
}

/** What the add-in uses. */
export const BOUNDS: Bounds = { workMs: 25_000, leastMs: 1_000, lookMs: 2_000, calls: 5_000, characters: 4_000_000 };

/** A request's part of the calls, and how it stands. */
interface Chunk {
  calls: Call[];
  text: string;
  name: string;
  ticket: string | undefined;
  /** Its answers as far as they are known. */
  cells: Cell[];
  isOver: boolean;
  /** Not sent before this. */
  notBefore: number;
}

/** Answers of calls, by key; what is missing is not ready. */
export function fetchAnswers(
  host: ScriptHost, settings: Settings, calls: Iterable<Call>, started: number, bounds: Bounds = BOUNDS,
): Map<string, Answer> {
  const chunks = split([...calls], bounds).map((part) => open(host, settings, part));
  const end = started + bounds.workMs;
  for (;;) {
    const waiting = chunks.filter(({ isOver }) => !isOver);
    const next = Math.max(host.now(), Math.min(...waiting.map(({ notBefore }) => notBefore)));
    if (waiting.length === 0 || next + bounds.leastMs > end) break;
    if (next > host.now()) host.sleep(next - host.now());
    const due = waiting.filter(({ notBefore }) => notBefore <= host.now());
    ask(host, settings, due, { end, bounds });
  }
  const answers = new Map<string, Answer>();
  for (const chunk of chunks) {
    chunk.calls.forEach((call, i) => {
      const answer = answerOf(chunk.cells[i]);
      if (answer) answers.set(keyOf(call), answer);
    });
  }
  return answers;
}

function split(calls: Call[], bounds: Bounds): Call[][] {
  const parts: Call[][] = [];
  let characters = 0;
  for (const call of calls) {
    const length = JSON.stringify(call).length;
    const last = parts[parts.length - 1];
    if (last && last.length < bounds.calls && characters + length <= bounds.characters) {
      last.push(call);
      characters += length;
    } else {
      parts.push([call]);
      characters = length;
    }
  }
  return parts;
}

function open(host: ScriptHost, settings: Settings, calls: Call[]): Chunk {
  const text = JSON.stringify(calls);
  const name = requestCache.nameOf(host, settings, text);
  const known = requestCache.recall(host, name);
  const chunk: Chunk = { calls, text, name, ticket: undefined, cells: [], isOver: false, notBefore: 0 };
  if (known && "cells" in known && known.cells.length === calls.length) return { ...chunk, cells: known.cells, isOver: true };
  return known && "ticket" in known ? { ...chunk, ticket: known.ticket } : chunk;
}

/** One round: every due chunk is asked or looked at, all at once. */
function ask(host: ScriptHost, settings: Settings, due: Chunk[], time: { end: number; bounds: Bounds }): void {
  const isNew = due.some(({ ticket }) => ticket === undefined);
  const refusal = isNew ? rateLimit.refusal(host) : undefined;
  if (refusal) for (const chunk of due) if (chunk.ticket === undefined) lose(chunk, refusal);
  const sent = due.filter(({ isOver }) => !isOver);
  if (sent.length === 0) return;
  const left = time.end - host.now();
  const questions = sent.filter(({ ticket }) => ticket === undefined);
  const count = rateLimit.countRequests(host, sent.length, questions.length);
  let replies: HttpReply[];
  try {
    replies = host.fetchAll(sent.map((chunk) => request(settings, chunk, left)));
  } catch (error) {
    for (const chunk of sent) lose(chunk, transportError(error, settings));
    return;
  }
  sent.forEach((chunk, i) => {
    const reply = replies[i];
    if (reply) take(host, chunk, reply, time);
  });
  count.inTime(questions.filter(({ ticket }) => ticket === undefined).length);
}

/** What to do about an exception of `UrlFetchApp`, whose own words are about Google's insides. */
function transportError(error: unknown, { url }: Settings): string {
  return refusedByGoogle(error) ?? `the server at ${url} cannot be reached`;
}

/** What Google has against a request, and what to do; nothing where it was sent and no server answered. */
export function refusedByGoogle(error: unknown): string | undefined {
  const words = String(error);
  if (/too many times|quota|rate limit/i.test(words)) return "this account's requests of today are used up, says Google; go on tomorrow";
  if (/permission|authori[sz]/i.test(words)) return "the script may not call servers yet: menu RelServe > Panel, and allow it";
  return undefined;
}

function request({ url, key, model }: Settings, chunk: Chunk, left: number): HttpRequest {
  const headers = { Authorization: `Bearer ${key}` };
  if (chunk.ticket !== undefined) {
    return { url: `${url}/v1/cells/${encodeURIComponent(chunk.ticket)}`, method: "get", headers, muteHttpExceptions: true };
  }
  const chosen = model === undefined ? "" : `,"model":${JSON.stringify(model)}`;
  const payload = `{"calls":${chunk.text},"deadline_ms":${Math.floor(left)}${chosen}}`;
  return { url: `${url}/v1/cells`, method: "post", headers, contentType: "application/json", payload, muteHttpExceptions: true };
}

interface CellsReply {
  status: string;
  cells?: Cell[];
  ticket?: string;
  error?: { message: string; type: string };
}

/** Takes a reply in. */
function take(host: ScriptHost, chunk: Chunk, reply: HttpReply, { end, bounds }: { end: number; bounds: Bounds }): void {
  const status = reply.getResponseCode();
  const body = parse(reply.getContentText());
  if (status === 404 && chunk.ticket !== undefined) {
    // The ticket has expired, or the server has a new store: the question is asked again.
    chunk.ticket = undefined;
    requestCache.forget(host, chunk.name);
    return;
  }
  const pause = status === 429 || status === 503 ? retryAfter(reply) : undefined;
  if (pause !== undefined && host.now() + pause + bounds.leastMs <= end) {
    chunk.notBefore = host.now() + pause;
    return;
  }
  if (status !== 200 || !body?.cells) {
    const message = body?.error?.message ?? `the server answered ${status}`;
    const later = pause === undefined ? "" : ` (try again in ${Math.ceil(pause / 1_000)} s)`;
    lose(chunk, message + later, body?.error?.type);
    return;
  }
  chunk.cells = body.cells;
  const isRunning = body.status === "running" || body.status === "partial";
  if (isRunning) {
    chunk.ticket = body.ticket ?? chunk.ticket;
    chunk.notBefore = host.now() + bounds.lookMs;
    if (chunk.ticket !== undefined) requestCache.remember(host, chunk.name, { ticket: chunk.ticket });
    return;
  }
  chunk.isOver = true;
  chunk.ticket = undefined;
  // A run that was called off or given up leaves cells without an answer.
  const gone = { message: body.error?.message ?? `the request was ${body.status}`, type: "server_error" };
  chunk.cells = chunk.calls.map((_, i) => {
    const cell = body.cells?.[i];
    return !cell || cell.pending ? { error: gone } : cell;
  });
  // Failures are asked again next time.
  if (chunk.cells.some(({ error }) => error)) requestCache.forget(host, chunk.name);
  else requestCache.remember(host, chunk.name, { cells: chunk.cells });
}

/** The whole chunk has no answer, for one reason. */
function lose(chunk: Chunk, message: string, type = "server_error"): void {
  chunk.isOver = true;
  chunk.ticket = undefined;
  chunk.cells = chunk.calls.map(() => ({ error: { message, type } }));
}

function answerOf(cell: Cell | undefined): Answer | undefined {
  if (!cell || cell.pending) return undefined;
  return cell.error ? { error: errorOf(cell.error) } : { value: cell.value ?? "" };
}

function parse(text: string): (CellsReply & { error?: { message: string; type: string } }) | undefined {
  try {
    return JSON.parse(text) as CellsReply;
  } catch {
    // A proxy's page: its status says enough.
    return undefined;
  }
}

/** Milliseconds that the server asks us to wait. */
function retryAfter(reply: HttpReply): number | undefined {
  const headers = reply.getHeaders();
  const name = Object.keys(headers).find((header) => header.toLowerCase() === "retry-after");
  const seconds = Number(name === undefined ? Number.NaN : headers[name]);
  return seconds > 0 ? seconds * 1_000 : undefined;
}
