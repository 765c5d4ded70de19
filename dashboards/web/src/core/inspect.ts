// What is told of one cell, in lines: how it stands, what its answer took, and what was before it. Words only; where a
// fact is not known, the line says so.

import type { CellDetails } from "relserve-client/details";

import { count, decimal, percent, t } from "../text";
import { plainDecision } from "./live/words";

/** How a cell stands. */
export type CellState =
  | { kind: "answered" | "failed"; details: CellDetails | undefined; isKnown: boolean }
  | { kind: "stopped" | "paused" | "away" | "queued" }
  | { kind: "sent"; queue: ServerQueue | undefined };

/** What the server holds now, as `GET /v1/scheduler` tells. */
export interface ServerQueue {
  rows: { waiting: number; running: number };
  /** Why it chose its last step. */
  last_decision?: string;
}

/** A term and what is said of it. */
export type Line = readonly [term: string, text: string];

const span = (ms: number) => (ms < 1_000 ? `${decimal(ms, ms < 10 ? 1 : 0)} ms` : `${decimal(ms / 1_000, 2)} s`);

/** The lines about a cell's answer. */
export function linesOf(state: CellState): Line[] {
  if (!("isKnown" in state)) return [[t.inspect.whyWaits, waits(state)]];
  const { details, isKnown } = state;
  if (!details) {
    return [[t.inspect.detailsTerm, isKnown ? t.inspect.untold : t.inspect.forgotten]];
  }
  return [...probabilityOf(details), ...tokens(details), ...times(details)];
}

/** How sure the model was. */
function probabilityOf({ probability, usage }: CellDetails): Line[] {
  if (!usage) return [];
  return [[t.inspect.probability, probability === undefined ? t.inspect.probabilityUnknown : t.inspect.probabilityOf(share(probability))]];
}

/** A probability in percent; next to certain and next to impossible are not rounded to what they are not. */
function share(of: number): string {
  if (of < 1 && of > 0.999) return `> ${percent(0.999, 1)}`;
  if (of < 0.001) return `< ${percent(0.001, 1)}`;
  return percent(of, of === 1 ? 0 : 1);
}

function tokens({ usage, source, finish_reason }: CellDetails): Line[] {
  if (!usage) return [[t.inspect.tokens, t.inspect.noTokens]];
  const { prompt_tokens, computed_tokens, completion_tokens, prompt_tokens_details } = usage;
  const cut = finish_reason === "length" ? t.inspect.cut : "";
  const from = source === "cache" ? t.inspect.fromCache
    : source === "shared" ? t.inspect.fromShared : t.inspect.fromModel;
  return [
    [t.inspect.from, from],
    [t.inspect.promptTokens, t.inspect.promptCount(prompt_tokens, computed_tokens, prompt_tokens_details.cached_tokens)],
    [t.inspect.answerTokens, `${count(completion_tokens)}${cut}`],
  ];
}

function times({ timing, source }: CellDetails): Line[] {
  if (!timing) {
    const why = source === "cache" ? t.inspect.notCached
      : source === "shared" ? t.inspect.waitedShared : t.inspect.neverBegan;
    return [[t.inspect.whyWaited, why]];
  }
  const { waiting_ms, running_ms, cells_before, rows_waiting, rows_running } = timing;
  return [
    [t.inspect.time, t.inspect.waitedRan(span(waiting_ms), span(running_ms))],
    [t.inspect.whyWaited, ahead(cells_before, rows_waiting, rows_running)],
  ];
}

function ahead(before: number, waiting: number | undefined, running: number | undefined): string {
  const own = before > 0 ? t.inspect.ownBefore(before) : t.inspect.ownFirst;
  if (waiting === undefined || running === undefined) return t.inspect.restUntold(own);
  if (waiting + running === 0) return t.inspect.idle(own);
  return t.inspect.busy(running, waiting, own);
}

function waits(state: Exclude<CellState, { kind: "answered" | "failed" }>): string {
  switch (state.kind) {
    case "stopped": return t.inspect.stopped;
    case "paused": return t.inspect.paused;
    case "away": return t.inspect.away;
    case "queued": return t.inspect.queued;
    case "sent": {
      if (!state.queue) return t.inspect.sent;
      const { rows: held, last_decision } = state.queue;
      const why = last_decision ? t.inspect.lastStep(plainDecision(last_decision)) : "";
      return `${t.inspect.held(held.running, held.waiting)}${why}`;
    }
  }
}
