// What the scheduler chose lately, for people: steps that followed each other, were alike and had one reason are one line,
// which says what was computed, for whom, how long it took and why. No browser.

import { t } from "../../text";
import type { Step } from "./events";
import { plainReason, span } from "./words";

/** Steps one after the other that were of one kind, had one reason and the same relQuery in front. */
export interface BatchRun {
  kind: Step["kind"];
  reason: string;
  failed: boolean;
  /** The relQuery that stood first; absent where nobody may know it. */
  front?: string;
  /** Of which it was the first: of those whose prompts were computed, of those that still waited, or of those that ran. */
  place: "first" | "next" | "running";
  steps: number;
  /** Prompts and their tokens, all steps together. */
  prompts: number;
  tokens: number;
  /** Rows that wrote answers, in the step with the most. */
  decode_rows: number;
  took_us: number;
  /** When the last of them ended. */
  end_us: number;
}

const frontOf = ({ front, first_running }: Step) => (front ?? first_running)?.id;

/** A relQuery whose rows run may have others that wait. */
function placeOf({ front, first_running, kind }: Step): BatchRun["place"] {
  if (front === undefined) return "running";
  if (kind !== "decode") return "first";
  return front.id === first_running?.id ? "running" : "next";
}

function isAlike(run: BatchRun, step: Step): boolean {
  return run.kind === step.kind && run.reason === step.reason && run.failed === (step.failed ?? false) && run.front === frontOf(step) && run.place === placeOf(step);
}

/** The last runs of steps, the newest first. */
export function batchRuns(steps: readonly Step[], most: number): BatchRun[] {
  const runs: BatchRun[] = [];
  for (let at = steps.length - 1; at >= 0; at -= 1) {
    const step = steps[at] as Step;
    let run = runs.at(-1);
    if (!run || !isAlike(run, step)) {
      if (runs.length === most) break;
      const front = frontOf(step);
      run = {
        kind: step.kind, reason: step.reason, failed: step.failed ?? false, ...(front === undefined ? {} : { front }),
        place: placeOf(step), steps: 0, prompts: 0, tokens: 0, decode_rows: 0, took_us: 0, end_us: step.start_us + step.took_us,
      };
      runs.push(run);
    }
    run.steps += 1;
    run.prompts += step.prefill.rows;
    run.tokens += step.prefill.tokens;
    run.decode_rows = Math.max(run.decode_rows, step.decode_rows);
    run.took_us += step.took_us;
  }
  return runs;
}

/** A run in two sentences: what, and why. `name` gives a relQuery's title, where it is known. */
export function batchWords(run: BatchRun, name: (id: string) => string | undefined): string {
  const parts: string[] = [];
  if (run.prompts > 0) parts.push(t.batch.prompts(run.prompts, run.tokens));
  if (run.decode_rows > 0) parts.push(t.batch.answers(run.decode_rows));
  const what = parts.length > 0 ? parts.join(t.batch.and) : t.live.kinds[run.kind];
  const took = run.steps > 1 ? t.batch.steps(what, span(run.took_us), run.steps) : t.batch.step(what, span(run.took_us));
  const front = run.front === undefined ? undefined : name(run.front);
  const why = t.batch.why(plainReason(run.reason, run.kind));
  const first = took.charAt(0).toUpperCase() + took.slice(1);
  return [run.failed ? `${first}${t.live.stepFailed}.` : `${first}.`, why, ...(front === undefined ? [] : [t.batch.fronts[run.place](front)])].join(" ");
}
