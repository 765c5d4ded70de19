// What the live view knows: the stream's events (`docs/LIVE.md`) put together, and what is drawn of them. No browser, no
// clock; all that is kept is bounded.

/** The first event of a stream. */
export interface Hello {
  policy: string;
  plant: "engine" | "fleet";
  sees: "own" | "all";
  frame_ms: number;
  survey_ms: number;
  at_us: number;
}

/** Whose part of a step. */
export interface Share {
  whose: string;
  prefill_rows: number;
  prefill_tokens: number;
  decode_rows: number;
  took_us: number;
}

interface Seen {
  id?: string;
  priority: number;
}

/** One step of the model. */
export interface Step {
  step: number;
  kind: "prefill" | "decode" | "mixed";
  start_us: number;
  took_us: number;
  scheduling_us: number;
  gap_us?: number;
  failed?: boolean;
  prefill: { rows: number; tokens: number };
  decode_rows: number;
  guesses?: number;
  preempted?: number;
  reason: string;
  delta?: { total_us: number; lost_us: number; gained_us: number };
  candidate?: { relqueries: number; rows: number; tokens: number };
  running: { relqueries: number; rows: number };
  front?: Seen;
  first_running?: Seen;
  shares: Share[];
}

interface Called {
  id: string;
  whose: string;
  route: string;
  request?: string;
  class: string;
}

/** A relQuery that ended. */
export interface Ended extends Called {
  arrival_us: number;
  end_us: number;
  outcome: "completed" | "cancelled";
  rows: number;
  failed_rows: number;
  /** Called off before their end. */
  cancelled_rows: number;
  prompt_tokens: number;
  output_tokens: number;
  periods?: { waiting_us: number; core_us: number; tail_us: number };
}

/** The period of RelServe's Eq. 2 in which a relQuery is. */
export type Period = "waiting" | "core" | "tail";

/** A relQuery in the queue. */
export interface Standing extends Called {
  place: number;
  period: Period;
  arrival_us: number;
  started_us?: number;
  prefilled_us?: number;
  rows: { submitted: number; waiting: number; prefilling: number; running: number; ended: number };
  priority: number;
  /** `ns`; `aged`: work made less by waiting, no time any more; `tokens`. */
  unit: "ns" | "aged" | "tokens";
  is_new: boolean;
  made_of: string;
  why?: string;
}

/** Queue and memory. */
export interface Scene {
  at_us: number;
  relqueries: Standing[];
  others: { relqueries: number; rows_waiting: number; rows_running: number };
  rows_waiting: number;
  rows_running: number;
  kv: {
    total: number; private: number; shared: number; independent: number; pinned: number; cached: number; free: number;
    /** Blocks of the host tier in use, and all of it; not of `total`. */
    host: number; host_total: number;
    held: { whose: string; blocks: number }[];
  };
  prompt_tokens: number;
  prefix_hit_tokens: number;
  output_tokens: number;
  steps: number;
  preemptions: number;
  executors?: { name: string; state: string; rows: number; rows_max: number; tokens: number }[];
}

/** What happened since the frame before. */
export interface Frame {
  at_us: number;
  lost_steps: number;
  steps: Step[];
  ended: Ended[];
  scene?: Scene;
}

/** Bounds of what the page keeps. */
export const STEPS_MAX = 2_000;
export const BARS_MAX = 40;
export const POINTS_MAX = 240;
const REASONS_MAX = 4;
/** Looks without a relQuery after which it is taken for gone, where nobody said how it ended. */
const MISSING_MAX = 20;

/** One relQuery over time. */
export interface Bar extends Called {
  arrival_us: number;
  /** Its first prefill, and the end of the last that is known. */
  started_us: number | undefined;
  prefilled_us: number | undefined;
  /** Absent while it lives. */
  end_us: number | undefined;
  period: Period | "completed" | "cancelled";
  rows: number;
  done: number;
  failed: number;
  /** Why its priority changed, the last first. */
  reasons: string[];
  missing: number;
}

/** A stretch of a bar. */
export interface Segment {
  kind: Period | "cancelled";
  from: number;
  to: number;
}

/** A moment of the counts that are drawn as curves. */
export interface Point {
  at_us: number;
  waiting: number;
  running: number;
  prompt: number;
  hit: number;
  output: number;
  steps: number;
}

/** All that the view knows. */
export class LiveModel {
  hello: Hello | undefined;
  scene: Scene | undefined;
  /** The server's time of the last news. */
  now = 0;
  lost = 0;
  readonly steps: Step[] = [];
  readonly points: Point[] = [];
  private readonly known = new Map<string, Bar>();

  /** A stream begins; what an earlier one told stays, unless the server started anew. */
  greet(hello: Hello): void {
    if (hello.at_us < this.now) this.clear();
    this.hello = hello;
    this.now = hello.at_us;
  }

  private clear(): void {
    this.scene = undefined;
    this.lost = 0;
    this.steps.length = 0;
    this.points.length = 0;
    this.known.clear();
  }

  /** Takes a frame in. */
  take(frame: Frame): void {
    this.now = Math.max(this.now, frame.at_us);
    this.lost += frame.lost_steps;
    // A stream that begins anew tells some steps again.
    const last = this.steps.at(-1)?.step ?? 0;
    this.steps.push(...frame.steps.filter((step) => step.step > last));
    this.steps.splice(0, this.steps.length - STEPS_MAX);
    if (frame.scene) this.look(frame.scene);
    for (const one of frame.ended) this.end(one);
    this.forget();
  }

  private look(scene: Scene): void {
    this.scene = scene;
    this.points.push({
      at_us: scene.at_us, waiting: scene.rows_waiting, running: scene.rows_running, prompt: scene.prompt_tokens,
      hit: scene.prefix_hit_tokens, output: scene.output_tokens, steps: scene.steps,
    });
    this.points.splice(0, this.points.length - POINTS_MAX);
    const seen = new Set<string>();
    for (const one of scene.relqueries) {
      seen.add(one.id);
      const reasons = this.known.get(one.id)?.reasons ?? [];
      if (one.why) reasons.unshift(one.why);
      reasons.splice(REASONS_MAX);
      const { submitted, ended } = one.rows;
      this.known.set(one.id, {
        ...called(one), arrival_us: one.arrival_us, started_us: one.started_us, prefilled_us: one.prefilled_us,
        end_us: undefined, period: one.period, rows: submitted, done: ended, failed: 0, reasons, missing: 0,
      });
    }
    for (const [id, bar] of this.known) {
      if (bar.end_us !== undefined || seen.has(id)) continue;
      bar.missing += 1;
      if (bar.missing > MISSING_MAX) this.known.delete(id);
    }
  }

  private end(one: Ended): void {
    const before = this.known.get(one.id);
    const started = one.periods ? one.arrival_us + one.periods.waiting_us : before?.started_us;
    const prefilled = one.periods && started !== undefined ? started + one.periods.core_us : before?.prefilled_us;
    this.known.set(one.id, {
      ...called(one), arrival_us: one.arrival_us, started_us: started, prefilled_us: prefilled, end_us: one.end_us,
      period: one.outcome, rows: one.rows, done: one.rows - one.cancelled_rows, failed: one.failed_rows, reasons: before?.reasons ?? [], missing: 0,
    });
  }

  /** Those that ended first make room, then those that came last. */
  private forget(): void {
    const over = this.known.size - BARS_MAX;
    if (over <= 0) return;
    const order = (a: Bar, b: Bar) => {
      if (a.end_us !== undefined && b.end_us !== undefined) return a.end_us - b.end_us;
      if (a.end_us === undefined && b.end_us === undefined) return b.arrival_us - a.arrival_us;
      return a.end_us === undefined ? 1 : -1;
    };
    for (const bar of [...this.known.values()].sort(order).slice(0, over)) this.known.delete(bar.id);
  }

  /** The relQueries, the youngest first. */
  bars(): Bar[] {
    return [...this.known.values()].sort((a, b) => b.arrival_us - a.arrival_us || (a.id < b.id ? 1 : -1));
  }

  /** Why a relQuery's priority changed, the last first. */
  reasons(id: string): string[] {
    return this.known.get(id)?.reasons ?? [];
  }
}

function called({ id, whose, route, request, class: service }: Called): Called {
  return { id, whose, route, class: service, ...(request === undefined ? {} : { request }) };
}

/** What a relQuery is called in a line. */
export function label(one: Called): string {
  return `${one.route || "relQuery"} …${one.id.slice(-4)}`;
}

/** The stretches of a relQuery's time until `now` (RelServe, Eq. 2). */
export function segments(bar: Bar, now: number): Segment[] {
  const end = bar.end_us ?? Math.max(now, bar.arrival_us);
  if (bar.period === "cancelled" && bar.started_us === undefined) return [{ kind: "cancelled", from: bar.arrival_us, to: end }];
  const started = Math.min(bar.started_us ?? end, end);
  const isCore = bar.period === "waiting" || bar.period === "core";
  const prefilled = isCore ? end : Math.max(started, Math.min(bar.prefilled_us ?? end, end));
  const all: Segment[] = [
    { kind: "waiting", from: bar.arrival_us, to: started },
    { kind: "core", from: started, to: prefilled },
    { kind: bar.period === "cancelled" ? "cancelled" : "tail", from: prefilled, to: end },
  ];
  return all.filter((part) => part.to > part.from);
}

/** A priority in words; the lower goes first. */
export function priority(one: Standing): string {
  const count = (number: number) => Math.round(number).toLocaleString("en");
  if (one.unit === "ns") return span(one.priority / 1e3);
  return one.unit === "aged" ? `${count(one.priority / 1e6)}, aged` : `${count(one.priority)} tokens`;
}

/** A stretch of time in words. */
export function span(us: number): string {
  if (Math.abs(us) < 1_000) return `${Math.round(us)} µs`;
  if (Math.abs(us) < 1e6) return `${(us / 1e3).toFixed(Math.abs(us) < 1e4 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(Math.abs(us) < 1e7 ? 2 : 1)} s`;
}

/** The periods of a bar in words. */
export function periods(bar: Bar, now: number): string {
  return segments(bar, now).map(({ kind, from, to }) => `${kind} ${span(to - from)}`).join(", ") || "just came";
}

/** Each one's share of the machine's time, of those steps that began after `since`; the greatest first. */
export function shares(steps: readonly Step[], since: number): { whose: string; took_us: number; part: number }[] {
  const sums = new Map<string, number>();
  let all = 0;
  for (const step of steps) {
    if (step.start_us < since) continue;
    for (const { whose, took_us } of step.shares) {
      sums.set(whose, (sums.get(whose) ?? 0) + took_us);
      all += took_us;
    }
  }
  return [...sums].map(([whose, took_us]) => ({ whose, took_us, part: all > 0 ? took_us / all : 0 })).sort((a, b) => b.took_us - a.took_us);
}

/** Share of prompt tokens that the prefix cache supplied between the first and the last point; none where none were asked. */
export function hitRate(points: readonly Point[]): number | undefined {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last || last.prompt <= first.prompt) return undefined;
  return (last.hit - first.hit) / (last.prompt - first.prompt);
}

/** The arranger's trade-off in words (RelServe, Eq. 15-17). */
export function delta(step: Step): string | undefined {
  if (!step.delta) return undefined;
  const { total_us, lost_us, gained_us } = step.delta;
  // The server's numbers are rounded.
  const sign = gained_us > 2 && Math.abs(total_us - lost_us - gained_us) <= 2 ? "+" : "−";
  return `Δ = ${span(lost_us)} lost ${sign} ${span(gained_us)} gained = ${span(total_us)}`;
}

/** A step in lines: what a person reads who stops at it. */
export function describe(step: Step): string[] {
  const { prefill, decode_rows, candidate, running } = step;
  const lines = [`Step ${step.step}: ${step.kind}, ${span(step.took_us)}${step.failed ? ", failed" : ""}`];
  const parts = [];
  if (prefill.rows > 0) parts.push(`${prefill.rows} prompts, ${prefill.tokens} tokens computed`);
  if (decode_rows > 0) parts.push(`${decode_rows} rows decode`);
  if (step.guesses) parts.push(`${step.guesses} tokens guessed`);
  if (step.preempted) parts.push(`${step.preempted} rows gave up their memory`);
  lines.push(parts.join("; "), `Why: ${step.reason}`);
  const traded = delta(step);
  if (traded) lines.push(`${traded} (Eq. 15-17)`);
  if (candidate) lines.push(`Could prefill ${candidate.rows} rows of ${candidate.relqueries} relQueries, ${candidate.tokens} tokens`);
  lines.push(`Ran before: ${running.rows} rows of ${running.relqueries} relQueries`);
  if (step.shares.length > 0) lines.push(`Time: ${step.shares.map((share) => `${share.whose} ${span(share.took_us)}`).join(", ")}`);
  lines.push(`Planned and applied in ${span(step.scheduling_us)}${step.gap_us === undefined ? "" : `, ${span(step.gap_us)} after the step before`}`);
  return lines;
}
