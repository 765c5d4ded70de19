// What is asked when: a pure state machine. Time comes in as a number, requests go out as actions, so that a
// test drives it without a clock or a network.
//
// Cells say which calls they want. Calls that are new wait for `window` milliseconds and go out together, one
// request for all (Office.js add-ins do the same with the same 100 ms). A call that several cells want is asked
// once. When no cell wants any call of a request any more, the request is dropped, which cancels it on the
// server; that is decided at the next `poll`, so that a call whose cell moved is wanted again by then. What is in flight is bounded; what is over it waits its turn here.

import type { Call } from "./calls";

/** Who waits for answers: a cell of the page, a formula of Excel. The batcher only tells them apart. */
export type SubscriberId = number;

/** The bounds. */
export interface Limits {
  /** How long misses are collected, in milliseconds. */
  window: number;
  /** Most calls of a request (the server takes 20,000). */
  calls: number;
  /** Most characters of a request's calls (the server takes 16 MiB). */
  characters: number;
  /** Most requests in flight. */
  requests: number;
  /** How often a call is asked again after a failure of the transport. */
  retries: number;
  /** The first pause before asking again; it doubles. */
  pause: number;
  /** Most new calls that go out without being allowed first (`allow`). */
  freely: number;
}

/** What the page uses. */
export const LIMITS: Limits = {
  window: 100, calls: 5_000, characters: 4_000_000, requests: 4, retries: 6, pause: 1_000, freely: Infinity,
};

/** What the edge has to do. */
export type Action =
  // `askers`: for each call the one that wanted it first.
  | { kind: "send"; request: number; keys: string[]; calls: Call[]; askers: (SubscriberId | undefined)[] }
  | { kind: "abort"; request: number };

interface Entry {
  call: Call;
  cells: Set<SubscriberId>;
  /** The request it is in; none while it waits. */
  request: number | undefined;
  tries: number;
  /** Whether it may go out however many there are: it went out before, or was allowed. */
  isAllowed: boolean;
}

interface Request {
  keys: string[];
  /** Keys without an answer. */
  open: Set<string>;
}

/** How a request ended badly. */
export interface Failure {
  /** Whether asking again may help. */
  again: boolean;
  /** When the server says so, milliseconds until then. */
  retryAfter: number | undefined;
  /** Whether a request of fewer calls may succeed. */
  isTooLarge?: boolean;
  /** Whether no server was reached: nothing goes out until `online` is called. */
  isUnreachable?: boolean;
}

/** A call that is open no more, and the cells that waited for it. */
export interface Closed {
  key: string;
  cells: SubscriberId[];
}

/** The state machine. */
export class Batcher {
  private readonly entries = new Map<string, Entry>();
  private readonly wants = new Map<SubscriberId, ReadonlySet<string>>();
  private readonly requests = new Map<number, Request>();
  private queue: string[] = [];
  /** Calls that a cell has said to want no more. */
  private left: [string, SubscriberId][] = [];
  private opens: number | undefined;
  private aborts: number[] = [];
  private lastRequest = 0;
  /** Entries that are not allowed. */
  private unallowed = 0;
  /** Whether the last `poll` kept them back. */
  private isHolding = false;
  private isAway = false;
  private isHeld = false;

  /** Calls of one request as the server takes them: halved where it says that they are too many, and grown again. */
  private most: number;

  /** `isApart`: calls that go in requests without others. */
  constructor(private readonly limits: Limits = LIMITS, private readonly isApart: (key: string) => boolean = () => false) {
    this.most = limits.calls;
  }

  /** Calls without an answer. */
  get pending(): number {
    return this.entries.size;
  }

  /** Requests under way. */
  get inFlight(): number {
    return this.requests.size;
  }

  /** Whether the server cannot be reached, as far as is known. */
  get isOffline(): boolean {
    return this.isAway;
  }

  /** Whether its user keeps everything back. */
  get isPaused(): boolean {
    return this.isHeld;
  }

  /**
   * Keeps everything back until `resume`: gives the requests to abort. What they have not answered waits as well, since
   * a whole column may be one request, and goes out again then.
   */
  pause(now: number): Action[] {
    this.isHeld = true;
    const actions: Action[] = [];
    const open: string[] = [];
    for (const [request, state] of this.requests) {
      actions.push({ kind: "abort", request });
      for (const key of state.open) {
        const entry = this.entries.get(key);
        if (!entry) continue;
        entry.request = undefined;
        // What nobody wants any more was left in a request that others wanted: it need not go out again.
        if (entry.cells.size === 0) this.forget(key);
        else open.push(key);
      }
    }
    this.requests.clear();
    // In front of what was never sent: the order stays.
    this.queue.unshift(...open);
    if (open.length > 0) this.opens ??= now;
    return actions;
  }

  /** What waits goes out at the next `poll`. */
  resume(): void {
    this.isHeld = false;
  }

  /** Whether a call is open, and whether it has gone out. */
  stateOf(key: string): "sent" | "waiting" | undefined {
    const entry = this.entries.get(key);
    return entry && (entry.request === undefined ? "waiting" : "sent");
  }

  /** Keeps everything back until `online`. */
  offline(): void {
    this.isAway = true;
  }

  /** The server is there again: what waits goes out at the next `poll`. */
  online(): void {
    this.isAway = false;
  }

  /** New calls that wait until they are allowed or refused, once their window has closed; none where they are few. */
  held(): Call[] {
    if (!this.isHolding) return [];
    return [...this.entries.values()].flatMap(({ call, isAllowed }) => (isAllowed ? [] : [call]));
  }

  /** Lets all calls that are open now go out. */
  allow(): void {
    for (const entry of this.entries.values()) entry.isAllowed = true;
    this.unallowed = 0;
  }

  /** Says which calls a cell wants now, instead of what it wanted before. */
  want(cell: SubscriberId, calls: ReadonlyMap<string, Call>, now: number): void {
    const before = this.wants.get(cell) ?? [];
    if (calls.size > 0) this.wants.set(cell, new Set(calls.keys()));
    else this.wants.delete(cell);
    for (const [key, call] of calls) {
      const entry = this.entries.get(key);
      if (entry) {
        entry.cells.add(cell);
        continue;
      }
      this.entries.set(key, { call, cells: new Set([cell]), request: undefined, tries: 0, isAllowed: false });
      this.unallowed += 1;
      this.queue.push(key);
      this.opens ??= now + this.limits.window;
    }
    for (const key of before) if (!calls.has(key) && this.entries.has(key)) this.left.push([key, cell]);
  }

  private settle(): void {
    const left = this.left;
    this.left = [];
    for (const [key, cell] of left) if (!this.wants.get(cell)?.has(key)) this.leave(key, cell);
  }

  private leave(key: string, cell: SubscriberId): void {
    const entry = this.entries.get(key);
    if (!entry) return;
    entry.cells.delete(cell);
    if (entry.cells.size > 0) return;
    if (entry.request === undefined) {
      this.forget(key);
      return;
    }
    const request = this.requests.get(entry.request);
    // The answer of a call in flight is taken even if nobody wants it: an undo may.
    if (!request || [...request.open].some((open) => (this.entries.get(open)?.cells.size ?? 0) > 0)) return;
    this.aborts.push(entry.request);
    this.requests.delete(entry.request);
    for (const open of request.open) this.forget(open);
  }

  private forget(key: string): void {
    if (this.entries.get(key)?.isAllowed === false) this.unallowed -= 1;
    this.entries.delete(key);
  }

  /** What is due. */
  poll(now: number): Action[] {
    this.settle();
    const actions: Action[] = this.aborts.map((request) => ({ kind: "abort", request }));
    this.aborts = [];
    const isOpen = this.opens !== undefined && now >= this.opens;
    this.isHolding = isOpen && this.unallowed > this.limits.freely;
    if (!isOpen || this.isHolding || this.isAway || this.isHeld) return actions;
    while (this.queue.length > 0 && this.requests.size < this.limits.requests) {
      const send = this.fill();
      if (send) actions.push(send);
    }
    // What is left has had its window: it goes as soon as a request ends.
    if (this.queue.length === 0) this.opens = undefined;
    return actions;
  }

  private fill(): Action | undefined {
    const keys: string[] = [];
    const calls: Call[] = [];
    const askers: (SubscriberId | undefined)[] = [];
    let characters = 0;
    let used = 0;
    /** Calls of other models, which go in requests of their own. */
    const others: string[] = [];
    for (const key of this.queue) {
      const entry = this.entries.get(key);
      if (entry && entry.request === undefined && keys.length > 0 && entry.call.model !== calls[0]?.model) {
        others.push(key);
      } else if (entry && entry.request === undefined) {
        const isFull = keys.length >= this.most || characters + key.length > this.limits.characters;
        const isOther = this.isApart(key) !== this.isApart(keys[0] ?? key);
        if ((isFull || isOther) && keys.length > 0) break;
        characters += key.length;
        keys.push(key);
        calls.push(entry.call);
        const [asker] = entry.cells;
        askers.push(asker);
        entry.request = this.lastRequest + 1;
        if (!entry.isAllowed) this.unallowed -= 1;
        entry.isAllowed = true;
      }
      used += 1;
    }
    this.queue = others.concat(this.queue.slice(used));
    if (keys.length === 0) return undefined;
    this.lastRequest += 1;
    this.requests.set(this.lastRequest, { keys, open: new Set(keys) });
    return { kind: "send", request: this.lastRequest, keys, calls, askers };
  }

  /** When `poll` is due next: at once for aborts and free places, else when the window closes; never for what is kept back. */
  wake(): number | undefined {
    if (this.aborts.length > 0 || this.left.length > 0) return 0;
    if (this.isHolding || this.isAway || this.isHeld) return undefined;
    return this.requests.size < this.limits.requests ? this.opens : undefined;
  }

  /** Call `index` of a request has its answer: its key, and the cells that waited for it. */
  answered(request: number, index: number): Closed | undefined {
    const state = this.requests.get(request);
    const key = state?.keys[index];
    if (!state || key === undefined || !state.open.delete(key)) return undefined;
    return { key, cells: this.close(key) };
  }

  private close(key: string): SubscriberId[] {
    const entry = this.entries.get(key);
    this.forget(key);
    return entry ? [...entry.cells] : [];
  }

  /** A request ended; gives what it left unanswered for good. The rest is asked again. */
  ended(request: number, failure: Failure, now: number): Closed[] {
    const state = this.requests.get(request);
    if (!state) return [];
    this.requests.delete(request);
    if (failure.isUnreachable) this.offline();
    const isSplit = failure.isTooLarge === true && state.keys.length > 1;
    if (isSplit) this.most = Math.ceil(state.keys.length / 2);
    else if (state.open.size === 0) this.most = Math.min(2 * this.most, this.limits.calls);
    const lost: Closed[] = [];
    let tries = 0;
    for (const key of state.open) {
      const entry = this.entries.get(key);
      if (!entry) continue;
      if (entry.cells.size === 0) {
        this.forget(key);
      } else if (isSplit && !failure.again) {
        entry.request = undefined;
        this.queue.push(key);
        this.opens ??= now;
      } else if (failure.again && entry.tries < this.limits.retries) {
        entry.tries += 1;
        tries = Math.max(tries, entry.tries);
        entry.request = undefined;
        this.queue.push(key);
      } else {
        lost.push({ key, cells: this.close(key) });
      }
    }
    if (tries > 0) {
      // A server that is away is waited for otherwise.
      const growing = failure.isUnreachable ? 0 : this.limits.pause * 2 ** (tries - 1);
      const pause = Math.max(failure.retryAfter ?? 0, growing);
      this.opens = Math.max(this.opens ?? 0, now + pause);
    }
    return lost;
  }

  /** Calls off all that has no answer: the requests to abort, and what they and the queue would have answered. */
  stop(): { actions: Action[]; stopped: Closed[] } {
    const stopped = [...this.entries.keys()].map((key) => ({ key, cells: this.close(key) }));
    return { actions: this.clear(), stopped };
  }

  /** Calls off what waits to be allowed, or those of it that `isMeant`, and nothing else. */
  refuse(isMeant: (key: string) => boolean = () => true): Closed[] {
    const keys = [...this.entries].flatMap(([key, { isAllowed }]) => (isAllowed || !isMeant(key) ? [] : [key]));
    return keys.map((key) => ({ key, cells: this.close(key) }));
  }

  /** Drops everything; gives what to abort. */
  clear(): Action[] {
    const actions: Action[] = [...this.requests.keys()].map((request) => ({ kind: "abort", request }));
    for (const store of [this.entries, this.wants, this.requests]) store.clear();
    this.unallowed = 0;
    this.isHolding = this.isHeld = false;
    this.queue = [];
    this.left = [];
    this.opens = undefined;
    return actions;
  }
}
