// The server through the script: `google.script.run` hands requests on, with the key that stays there. What it calls cannot
// be called off once it runs, so a question goes with a short deadline and is looked at by its ticket, which can.

import type { Relayed } from "../src/panel-server";
import type { Net } from "../../shared/wire";

/** Calls a function of the script. */
export type Run = <T>(name: string, ...args: unknown[]) => Promise<T>;

/** A way to the server, and whether it was there when last asked. */
export interface ScriptNet extends Net {
  isLost(): boolean;
}

/** The way through the script. `base` is the server's address, which the script has itself. */
export function scriptNet(run: Run, base: () => string, sleep: Net["sleep"]): ScriptNet {
  let isLost = false;
  const relay = async (method: string, path: string, body: string): Promise<Relayed> => {
    try {
      const reply = await run<Relayed>("relserveRelay", method, path, body);
      isLost = reply.status === 0;
      if (!isLost) return reply;
    } catch (error) {
      isLost = true;
      throw error;
    }
    throw new TypeError("no server answered");
  };
  const fetch = async (url: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const path = String(url).slice(base().length);
    const { signal } = init;
    signal?.throwIfAborted();
    const relayed = relay(init.method ?? "GET", path, typeof init.body === "string" ? init.body : "");
    const { status, text, retryAfter } = signal ? await orAborted(relayed, signal, (late) => void callOff(late)) : await relayed;
    return new Response(text, { status, headers: retryAfter === undefined ? {} : { "Retry-After": retryAfter } });
  };
  /** A question that was under way when it was called off may have a ticket by now. */
  const callOff = async ({ text }: Relayed) => {
    const ticket = /"ticket":"([\w-]+)"/.exec(text)?.[1];
    if (ticket !== undefined) await relay("DELETE", `/v1/cells/${ticket}`, "").catch(() => undefined);
  };
  return { fetch, sleep, isLost: () => isLost };
}

/** A promise, or an abort that comes first; what comes later is told of. */
function orAborted<T>(promise: Promise<T>, signal: AbortSignal, late: (value: T) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      promise.then(late, () => undefined);
      reject(signal.reason);
    };
    signal.addEventListener("abort", aborted);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", aborted));
  });
}
