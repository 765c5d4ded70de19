// Apps Script's services as the project uses them, for tests: caches and properties in memory, a clock that moves when
// somebody sleeps, and `UrlFetchApp` either as a function of the test or over real HTTP. The built file runs in a
// bare context, which has no browser's and no Node's globals, as Apps Script has none.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { MessageChannel, Worker, receiveMessageOnPort } from "node:worker_threads";
import { runInNewContext } from "node:vm";

import type { Cache, HttpReply, HttpRequest, Properties, ScriptHost } from "../src/google";

/** A reply as a test makes one. */
export interface Reply {
  status: number;
  body: unknown;
  headers?: Record<string, string>;
  /** How long it takes. */
  ms?: number;
}

/** A reply as Apps Script shows one. */
export function httpReply({ status, body, headers }: Reply): HttpReply {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { getResponseCode: () => status, getContentText: () => text, getHeaders: () => headers ?? {} };
}

function memory(): Cache & Properties & { size(): number } {
  const held = new Map<string, string>();
  return {
    get: (key) => held.get(key) ?? null,
    put: (key, value, seconds) => {
      if (Buffer.byteLength(value) > 102_400) throw new Error("Argument too large: value");
      if (key.length > 250) throw new Error("Argument too large: key");
      if (!(seconds >= 1 && seconds <= 21_600)) throw new Error("seconds");
      held.set(key, value);
    },
    remove: (key) => void held.delete(key),
    getProperty: (key) => held.get(key) ?? null,
    setProperty: (key, value) => held.set(key, value),
    deleteProperty: (key) => held.delete(key),
    size: () => held.size,
  };
}

/** A world of a test: its own clock, and what was asked. */
export interface TestHost extends ScriptHost {
  clock: { now: number };
  asked: HttpRequest[];
}

/** A world whose server is a function. It throws for a server that is not there. */
export function testHost(answer: (request: HttpRequest, clock: { now: number }) => Reply): TestHost {
  const clock = { now: 1_000_000_000_000 };
  const asked: HttpRequest[] = [];
  const properties = memory();
  properties.setProperty("relserve.url", "https://relserve.example");
  properties.setProperty("relserve.key", "rs-test");
  properties.setProperty("relserve.formulas", "yes");
  return {
    clock,
    asked,
    now: () => clock.now,
    sleep: (milliseconds) => {
      clock.now += milliseconds;
    },
    fetchAll: (requests) => {
      asked.push(...requests);
      const replies = requests.map((request) => answer(request, clock));
      // They run side by side.
      clock.now += Math.max(...replies.map(({ ms }) => ms ?? 10));
      return replies.map(httpReply);
    },
    cache: memory(),
    properties,
    digest: (text) => createHash("sha256").update(text).digest("base64url"),
    dateText: (date) => date.toISOString().slice(0, 10),
  };
}

const FETCHER = `
  const { parentPort } = require("node:worker_threads");
  parentPort.on("message", async ({ requests, port, signal }) => {
    const one = async ({ url, method, headers, contentType, payload }) => {
      const type = contentType ? { "Content-Type": contentType } : {};
      const reply = await fetch(url, { method, headers: { ...headers, ...type }, body: payload });
      return { status: reply.status, headers: Object.fromEntries(reply.headers), body: await reply.text() };
    };
    let result;
    try { result = { replies: await Promise.all(requests.map(one)) }; }
    catch (error) { result = { error: "Address unavailable: " + error.message }; }
    port.postMessage(result);
    Atomics.store(signal, 0, 1);
    Atomics.notify(signal, 0);
  });
`;

/** `UrlFetchApp` over real HTTP: the caller waits, as in Apps Script, while a thread fetches. */
export function urlFetchApp(): { fetchAll(requests: HttpRequest[]): HttpReply[]; asked: HttpRequest[]; stop(): Promise<number> } {
  const worker = new Worker(FETCHER, { eval: true });
  const asked: HttpRequest[] = [];
  return {
    asked,
    stop: () => worker.terminate(),
    fetchAll: (requests) => {
      asked.push(...requests);
      const signal = new Int32Array(new SharedArrayBuffer(4));
      const { port1, port2 } = new MessageChannel();
      // What comes out of another context does not travel between threads as it is.
      worker.postMessage({ requests: JSON.parse(JSON.stringify(requests)) as unknown, port: port2, signal }, [port2]);
      if (Atomics.wait(signal, 0, 0, 60_000) === "timed-out") throw new Error("no reply within a minute");
      const { replies, error } = receiveMessageOnPort(port1)?.message as { replies?: Reply[]; error?: string };
      port1.close();
      if (!replies) throw new Error(error);
      return replies.map(httpReply);
    },
  };
}

/** A global function of the built project. */
export type Globals = Record<string, (...args: any[]) => unknown>;

/** Who opens and shares the spreadsheet of a test. */
export const OWNER = "owner";

/** The built project as Apps Script runs it: every user has their own properties and cache; custom functions get the owner's. */
export interface Project {
  /** The project's global functions, as somebody calls them: the menu, the sidebar, and formulas. */
  as(user: string): Globals;
  properties(user: string): Properties;
}

/** Loads the built project over these services, for several users. */
export function loadShared(services: { UrlFetchApp: unknown; SpreadsheetApp?: unknown }): Project {
  const code = readFileSync(new URL("../dist/Code.js", import.meta.url), "utf8");
  const stores = new Map<string, { cache: Cache; properties: Properties }>();
  let runsAs = OWNER;
  const store = (user: string) => {
    if (!stores.has(user)) stores.set(user, { cache: memory(), properties: memory() });
    return stores.get(user) as { cache: Cache; properties: Properties };
  };
  const shared = () => {
    throw new Error("every editor reads these properties");
  };
  const context: Record<string, unknown> = {
    ...services,
    CacheService: { getUserCache: () => store(runsAs).cache, getDocumentCache: shared, getScriptCache: shared },
    PropertiesService: {
      getUserProperties: () => store(runsAs).properties, getDocumentProperties: shared, getScriptProperties: shared,
    },
    SpreadsheetApp: services.SpreadsheetApp ?? { getActive: () => ({ getSpreadsheetTimeZone: () => "Etc/UTC" }) },
    Utilities: {
      sleep: (milliseconds: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds),
      DigestAlgorithm: { SHA_256: "sha256" },
      Charset: { UTF_8: "utf8" },
      computeDigest: (algorithm: string, text: string) => [...createHash(algorithm).update(text).digest()],
      base64EncodeWebSafe: (bytes: number[]) => Buffer.from(bytes).toString("base64url"),
      formatDate: (date: Date) => new Date(date.getTime()).toISOString().slice(0, 19).replace("T", " "),
    },
    HtmlService: { createHtmlOutput: (page: string) => ({ page, setTitle: (title: string) => ({ page, title }) }) },
  };
  // Younger than the V8 that Apps Script may run: the project must do without.
  const without = "delete Array.prototype.at; delete Array.prototype.findLast; delete String.prototype.replaceAll; delete Object.hasOwn;";
  runInNewContext(`${without}\n${code}`, context);
  const as = (user: string): Globals =>
    new Proxy(context as Globals, {
      get: (globals, name: string) => {
        const called = globals[name];
        if (typeof called !== "function") return called;
        return (...args: unknown[]) => {
          runsAs = name.startsWith("AI_") ? OWNER : user;
          return called(...args);
        };
      },
    });
  return { as, properties: (user) => store(user).properties };
}

/** The built project for one user, who owns the spreadsheet. */
export function load(services: { UrlFetchApp: unknown; SpreadsheetApp?: unknown }): Globals & { properties: Properties } {
  const project = loadShared(services);
  return Object.assign(project.as(OWNER), { properties: project.properties(OWNER) });
}
