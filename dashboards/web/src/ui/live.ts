// The live view: what the scheduler does now. Its `Source` is a poll today and can be a server-sent stream
// tomorrow: the view only sees snapshots come.

import { headers, replyError } from "../net/cells";
import { storedKey } from "../store/key";
import { element, fillList } from "./dom";

/** `GET /v1/scheduler`, as far as it is shown. */
export interface Snapshot {
  policy: string;
  relqueries: { held: number; waiting: number; running: number };
  rows: { waiting: number; running: number };
  kv_blocks: { total: number; used: number; cached: number; free: number };
  steps: number;
  prompt_tokens: number;
  prefix_hit_tokens: number;
  output_tokens: number;
  preemptions: number;
  last_decision: string;
}

/** Where snapshots come from; gives what stops it. */
export type Source = (onSnapshot: (snapshot: Snapshot, at: number) => void, onError: (message: string) => void) => () => void;

const POLL_MS = 1_000;

/** Asks once a second, and never while the page is hidden or an answer is under way. */
export const poll: Source = (onSnapshot, onError) => {
  let timer: number | undefined;
  let isStopped = false;
  const ask = async () => {
    if (!document.hidden) {
      try {
        const response = await fetch("v1/scheduler", { headers: headers(storedKey()) });
        if (!response.ok) throw await replyError(response);
        if (!isStopped) onSnapshot((await response.json()) as Snapshot, performance.now());
      } catch (error) {
        onError(error instanceof Error ? error.message : "the server cannot be reached");
      }
    }
    if (!isStopped) timer = window.setTimeout(() => void ask(), POLL_MS);
  };
  void ask();
  return () => {
    isStopped = true;
    clearTimeout(timer);
  };
};

/** Points of a curve: five minutes of seconds. */
const POINTS_MAX = 300;

/** The view. */
export class LiveView {
  private readonly host = element("live", HTMLElement);
  private readonly curves = new Map<string, number[]>();
  private last: { snapshot: Snapshot; at: number } | undefined;
  private stop: (() => void) | undefined;

  constructor(private readonly source: Source = poll) {
    this.host.classList.add("live");
  }

  /** Starts or stops. */
  show(on: boolean): void {
    this.stop?.();
    this.stop = on ? this.source((snapshot, at) => this.take(snapshot, at), (message) => this.fail(message)) : undefined;
  }

  private fail(message: string): void {
    const line = document.createElement("p");
    line.className = "bad";
    line.textContent = message;
    this.host.replaceChildren(line);
  }

  private take(snapshot: Snapshot, at: number): void {
    const before = this.last;
    this.last = { snapshot, at };
    const seconds = before ? (at - before.at) / 1_000 : 0;
    const rate = (read: (of: Snapshot) => number) =>
      before && seconds > 0 ? Math.max(0, (read(snapshot) - read(before.snapshot)) / seconds) : 0;
    const prompt = rate((of) => of.prompt_tokens);
    const output = rate((of) => of.output_tokens);
    const hits = snapshot.prompt_tokens > 0 ? (100 * snapshot.prefix_hit_tokens) / snapshot.prompt_tokens : 0;
    this.draw(snapshot, [
      ["Waiting rows", this.curve("Waiting rows", snapshot.rows.waiting)],
      ["Running rows", this.curve("Running rows", snapshot.rows.running)],
      ["Prompt tokens a second", this.curve("Prompt tokens a second", prompt)],
      ["Answer tokens a second", this.curve("Answer tokens a second", output)],
      ["Steps a second", this.curve("Steps a second", rate((of) => of.steps))],
    ], hits);
  }

  private curve(name: string, value: number): number[] {
    const points = this.curves.get(name) ?? [];
    this.curves.set(name, points);
    points.push(value);
    if (points.length > POINTS_MAX) points.shift();
    return points;
  }

  private draw(snapshot: Snapshot, curves: [string, number[]][], hits: number): void {
    const tiles = document.createElement("div");
    tiles.className = "tiles";
    const { relqueries } = snapshot;
    for (const [name, text] of [
      ["Policy", snapshot.policy],
      ["relQueries running", `${relqueries.running}`],
      ["relQueries waiting", `${relqueries.waiting}`],
      ["Prefix hits", `${hits.toFixed(1)} %`],
      ["Preemptions", `${snapshot.preemptions}`],
      ["Steps", snapshot.steps.toLocaleString("en")],
    ] as const) {
      const tile = document.createElement("div");
      tile.className = "tile";
      const value = document.createElement("b");
      value.textContent = text;
      tile.append(value, name);
      tiles.append(tile);
    }
    const blocks = snapshot.kv_blocks;
    const track = document.createElement("div");
    track.className = "track";
    track.setAttribute("role", "img");
    track.setAttribute("aria-label", `KV blocks: ${blocks.used} used, ${blocks.cached} cached, ${blocks.total} in all`);
    for (const part of [blocks.used, blocks.cached]) {
      const bar = document.createElement("i");
      bar.style.width = `${blocks.total > 0 ? (100 * part) / blocks.total : 0}%`;
      track.append(bar);
    }
    const facts = document.createElement("dl");
    fillList(facts, [
      ["KV blocks", `${blocks.used} used, ${blocks.cached} cached, ${blocks.free} free of ${blocks.total}`],
      ["Last decision", snapshot.last_decision || "none yet"],
    ]);
    const figures = document.createElement("div");
    figures.className = "curves";
    figures.append(...curves.map(([name, points]) => chart(name, points)));
    this.host.replaceChildren(tiles, track, facts, figures);
  }
}

function chart(name: string, points: number[]): HTMLElement {
  const figure = document.createElement("section");
  const most = Math.max(1, ...points);
  const now = points.at(-1) ?? 0;
  const title = document.createElement("p");
  title.textContent = `${name}: ${now.toFixed(now < 10 && now % 1 !== 0 ? 1 : 0)} (most ${most.toFixed(0)})`;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${POINTS_MAX} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", title.textContent);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const at = (i: number, value: number) => `${POINTS_MAX - points.length + i},${(98 - (96 * value) / most).toFixed(1)}`;
  line.setAttribute("points", points.map((value, i) => at(i, value)).join(" "));
  svg.append(line);
  figure.append(title, svg);
  return figure;
}
