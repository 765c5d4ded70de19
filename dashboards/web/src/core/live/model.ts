// What the live view knows: the stream's events put together. No browser, no clock; all that is kept is
// bounded.

import type { Decision, Ended, Frame, Hello, Period, RelQueryIdentity, Snapshot, Step } from "./events";

/** Bounds of what the page keeps. */
export const STEPS_MAX = 2_000;
export const BARS_MAX = 400;
export const DECISIONS_MAX = 400;
export const POINTS_MAX = 240;
const REASONS_MAX = 4;
/** Snapshots without a relQuery after which it is taken for gone, where nobody said how it ended. */
const MISSING_MAX = 20;

/** One relQuery over time. */
export interface Bar extends RelQueryIdentity {
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
  snapshot: Snapshot | undefined;
  /** The server's time of the last news. */
  now = 0;
  lost = 0;
  readonly steps: Step[] = [];
  readonly points: Point[] = [];
  /** The newest last. */
  readonly decisions: Decision[] = [];
  private readonly known = new Map<string, Bar>();

  /** A stream begins; what an earlier one told stays, unless the server started anew or tells another who looks. */
  greet(hello: Hello): void {
    const isOther = this.hello !== undefined && this.hello.visible_to !== hello.visible_to;
    if (hello.at_us < this.now || isOther) this.clear();
    this.hello = hello;
    this.now = hello.at_us;
  }

  /** Forgets all: another queue is shown. */
  clear(): void {
    this.snapshot = undefined;
    this.lost = 0;
    this.steps.length = 0;
    this.points.length = 0;
    this.decisions.length = 0;
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
    if (frame.snapshot) this.takeSnapshot(frame.snapshot);
    for (const one of frame.ended) this.end(one);
    this.decide(frame.decisions);
    this.forget();
  }

  private takeSnapshot(snapshot: Snapshot): void {
    this.snapshot = snapshot;
    this.points.push({
      at_us: snapshot.at_us, waiting: snapshot.rows_waiting, running: snapshot.rows_running,
      prompt: snapshot.prompt_tokens, hit: snapshot.prefix_hit_tokens, output: snapshot.output_tokens,
      steps: snapshot.steps,
    });
    this.points.splice(0, this.points.length - POINTS_MAX);
    const seen = new Set<string>();
    for (const one of snapshot.relqueries) {
      seen.add(one.id);
      const reasons = this.known.get(one.id)?.reasons ?? [];
      if (one.why) reasons.unshift(one.why);
      reasons.splice(REASONS_MAX);
      const { submitted, ended } = one.rows;
      this.known.set(one.id, {
        ...identity(one), arrival_us: one.arrival_us, started_us: one.started_us,
        prefilled_us: one.prefilled_us, end_us: undefined, period: one.period, rows: submitted, done: ended, failed: 0, reasons, missing: 0,
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
    const { periods } = one;
    const started = periods ? one.arrival_us + periods.waiting_us : before?.started_us;
    const prefilled = periods && started !== undefined ? started + periods.core_us : before?.prefilled_us;
    this.known.set(one.id, {
      ...identity(one), arrival_us: one.arrival_us, started_us: started, prefilled_us: prefilled,
      end_us: one.end_us, period: one.outcome, rows: one.rows, done: one.rows - one.cancelled_rows,
      failed: one.failed_rows, reasons: before?.reasons ?? [], missing: 0,
    });
  }

  /** A stream that begins anew tells some decisions again. */
  private decide(decisions: readonly Decision[]): void {
    const told = new Set(this.decisions.map(decisionKey));
    this.decisions.push(...decisions.filter((one) => !told.has(decisionKey(one))));
    this.decisions.sort((a, b) => a.at_us - b.at_us);
    this.decisions.splice(0, this.decisions.length - DECISIONS_MAX);
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

function identity({ id, tenant, route, request, class: service, label }: RelQueryIdentity): RelQueryIdentity {
  return { id, tenant, route, class: service, ...(request === undefined ? {} : { request }), ...(label === undefined ? {} : { label }) };
}

const decisionKey = ({ at_us, first, rival }: Decision) => `${at_us} ${first.id} ${first.rows} ${rival?.id}`;
