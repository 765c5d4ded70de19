// Where the live view's news comes from: the server's stream, or a poll where the server has none. Nothing is asked while
// the page is hidden.

import { EventReader } from "relserve-client/sse";
import { headers, replyError } from "relserve-client/wire";

import type { Frame, Hello } from "../core/live/events";
import { type Counts, readFrame, readHello } from "../core/live/wire";
import type { WhatIf } from "../core/what-if";
import { storedKey } from "../store/key";
import { t } from "../text";
import { ofModel } from "./told";

/** Who is told. */
export interface Listener {
  hello(hello: Hello): void;
  frame(frame: Frame): void;
  counts(counts: Counts): void;
  /** How it stands with the server, in words; `bad` where it should be otherwise. */
  state(words: string, bad: boolean): void;
}

/** Where news of a model comes from, by default of the default one; gives what stops it. */
export type Source = (listener: Listener, model?: string) => () => void;

const POLL_MS = 1_000;
/** Waits before the server is asked again, longer each time. */
const AGAIN_MS = [500, 1_000, 2_000, 5_000, 10_000];

const words = (error: unknown) => (error instanceof Error ? error.message : t.unreachable);

/** Waits for a time, or until the signal comes. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

/** Resolves once the page can be seen. */
function visible(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
  });
}

/** One stream to its end: `missing` where the server has none. */
async function follow(listener: Listener, model: string | undefined, signal: AbortSignal): Promise<"missing" | "ended"> {
  const response = await fetch(`v1/scheduler/events${ofModel(model)}`, { headers: headers(storedKey()), signal });
  if (response.status === 404) return "missing";
  if (!response.ok || !response.body) throw await replyError(response);
  listener.state(t.live.stream, false);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return "ended";
    for (const { name, data } of events.push(value)) {
      if (name === "hello") listener.hello(readHello(data));
      if (name === "frame") listener.frame(readFrame(data));
    }
  }
}

/** The server's stream, taken up again when it ends or breaks; the poll where there is none. */
export const stream: Source = (listener, model) => {
  const stopped = new AbortController();
  let stopPoll: (() => void) | undefined;
  const run = async () => {
    let failures = 0;
    while (!stopped.signal.aborted) {
      await visible(stopped.signal);
      if (stopped.signal.aborted) return;
      const open = new AbortController();
      const close = () => {
        if (document.hidden || stopped.signal.aborted) open.abort();
      };
      document.addEventListener("visibilitychange", close);
      stopped.signal.addEventListener("abort", close, { once: true });
      try {
        if ((await follow(listener, model, open.signal)) === "missing") {
          stopPoll = poll(listener, model);
          return;
        }
        failures = 0;
      } catch (error) {
        if (!open.signal.aborted) {
          listener.state(t.live.again(words(error)), true);
          failures += 1;
        }
      } finally {
        document.removeEventListener("visibilitychange", close);
      }
      const wait = AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)] ?? POLL_MS;
      await pause(wait, stopped.signal);
    }
  };
  void run();
  return () => {
    stopped.abort();
    stopPoll?.();
  };
};

/** Asks once a second. */
export const poll: Source = (listener, model) => {
  const stopped = new AbortController();
  const run = async () => {
    while (!stopped.signal.aborted) {
      await visible(stopped.signal);
      try {
        const response = await fetch(`v1/scheduler${ofModel(model)}`, { headers: headers(storedKey()), signal: stopped.signal });
        if (!response.ok) throw await replyError(response);
        listener.state(t.live.poll, false);
        listener.counts((await response.json()) as Counts);
      } catch (error) {
        if (!stopped.signal.aborted) listener.state(words(error), true);
      }
      await pause(POLL_MS, stopped.signal);
    }
  };
  void run();
  return () => stopped.abort();
};

/** Replays a model's last minutes under another policy. */
export async function whatIf(policy: string, model: string | undefined): Promise<WhatIf> {
  const response = await fetch(`v1/scheduler/what-if${ofModel(model)}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(storedKey()) },
    body: JSON.stringify({ policy }),
  });
  if (!response.ok) throw await replyError(response);
  return (await response.json()) as WhatIf;
}

/** A model's last minutes as a trace for `relserve sim`. */
export async function trace(model: string | undefined): Promise<string> {
  const response = await fetch(`v1/scheduler/trace${ofModel(model)}`, { headers: headers(storedKey()) });
  if (!response.ok) throw await replyError(response);
  return response.text();
}
