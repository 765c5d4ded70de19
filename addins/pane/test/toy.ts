// The test's own server, from the test's side.

import { Worker } from "node:worker_threads";

/** What the server was asked, and what it is told to do. */
export interface ToyState {
  asked: { calls: { function: string; args: unknown[] }[]; model?: string }[];
  dropped: number;
  cancelled: number;
}

/** The server; `KEY` is the only key that it knows. */
export class Toy {
  static readonly KEY = "rs-toy";
  private readonly worker = new Worker(new URL("./toy-server.mjs", import.meta.url), { workerData: { key: Toy.KEY } });
  private readonly replies = new Map<number, (value: unknown) => void>();
  private last = 0;
  url = "";

  constructor() {
    this.worker.on("message", ({ id, value }: { id: number; value: unknown }) => this.replies.get(id)?.(value));
  }

  async start(): Promise<void> {
    this.url = `http://127.0.0.1:${await this.tell<number>("start")}`;
  }

  /** Forgets what it was asked, and answers everything. */
  async reset(): Promise<void> {
    await this.tell("release");
    await this.set({ asked: [], dropped: 0, cancelled: 0, refuses: undefined, budget: { used: 0, max: null, setting: null } });
  }

  set(values: Record<string, unknown>): Promise<void> {
    return this.tell("set", values);
  }

  state(): Promise<ToyState> {
    return this.tell("state");
  }

  release(): Promise<void> {
    return this.tell("release");
  }

  kill(): Promise<void> {
    return this.tell("kill");
  }

  stop(): Promise<number> {
    return this.worker.terminate();
  }

  private tell<T>(name: string, value?: unknown): Promise<T> {
    const id = (this.last += 1);
    return new Promise((resolve) => {
      this.replies.set(id, resolve as (value: unknown) => void);
      this.worker.postMessage({ id, name, value });
    });
  }
}
