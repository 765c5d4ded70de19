// What is told of one cell, in lines: how it stands, what its answer took, and what was before it. Words only; where a
// fact is not known, the line says so.

import type { CellDetails } from "relserve-client/details";

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

const count = (value: number) => value.toLocaleString("en");
const rows = (value: number) => (value === 1 ? "1 row" : `${count(value)} rows`);
const cells = (value: number) => (value === 1 ? "1 cell" : `${count(value)} cells`);
const span = (ms: number) => (ms < 1_000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : `${(ms / 1_000).toFixed(2)} s`);

const PROBABILITY: Line =
  ["Probability", "not known: cells are asked without log probabilities, which would keep their answers out of the result cache"];

/** The lines about a cell's answer. */
export function linesOf(state: CellState): Line[] {
  if (!("isKnown" in state)) return [["Why it waits", waits(state)]];
  const { details, isKnown } = state;
  if (!details) {
    const why = isKnown ? "this server does not tell" : "this answer is no longer in the page's memory; Ask again asks for it anew";
    return [["Tokens, time, wait", `not known: ${why}`]];
  }
  return [
    ...tokens(details),
    ...(details.usage ? [PROBABILITY] : []),
    ...times(details),
  ];
}

function tokens({ usage, source, finish_reason }: CellDetails): Line[] {
  if (!usage) return [["Tokens", "none were counted"]];
  const { prompt_tokens, computed_tokens, completion_tokens, prompt_tokens_details } = usage;
  const cut = finish_reason === "length" ? ", cut at the most that the function allows" : "";
  const from = source === "cache" ? "the server's result cache: the model did not run"
    : source === "shared" ? "another cell that asks the same: the model ran once" : "the model";
  return [
    ["Answer from", from],
    ["Prompt tokens", `${count(prompt_tokens)}: ${count(computed_tokens)} computed, ${count(prompt_tokens_details.cached_tokens)} cached`],
    ["Answer tokens", `${count(completion_tokens)}${cut}`],
  ];
}

function times({ timing, source }: CellDetails): Line[] {
  if (!timing) {
    const why = source === "cache" ? "It did not: the answer was known."
      : source === "shared" ? "It waited for the other cell's answer; how long is not told." : "Not told: it never began.";
    return [["Why it waited", why]];
  }
  const { waiting_ms, running_ms, cells_before, rows_waiting, rows_running } = timing;
  return [
    ["Time on the server", `waited ${span(waiting_ms)}, ran ${span(running_ms)}`],
    ["Why it waited", ahead(cells_before, rows_waiting, rows_running)],
  ];
}

function ahead(before: number, waiting: number | undefined, running: number | undefined): string {
  const own = before > 0 ? `${cells(before)} of the same request began before it` : "it was the first of its request to begin";
  if (waiting === undefined || running === undefined) return `${own}; what else the server held is not told.`;
  if (waiting + running === 0) return `When its request came the server had nothing to do; ${own}.`;
  return `When its request came, ${rows(running)} ran and ${rows(waiting)} waited on the server, of everybody; ${own}. ` +
    "Which of the others went first is under Live.";
}

function waits(state: Exclude<CellState, { kind: "answered" | "failed" }>): string {
  switch (state.kind) {
    case "stopped": return "It was stopped; Ask again asks for it.";
    case "paused": return "The run is paused; Resume lets it go on.";
    case "away": return "The server cannot be reached; it goes on by itself when that is back.";
    case "queued": return "It has not been sent: other requests of this page go first, or its formula waits for another cell.";
    case "sent": {
      if (!state.queue) return "The server has it, and does not tell what is before it.";
      const { rows: held, last_decision } = state.queue;
      const why = last_decision ? ` Its last step: ${last_decision}.` : "";
      return `The server has it: ${rows(held.running)} run and ${rows(held.waiting)} wait there, of everybody, this one counted.${why}`;
    }
  }
}
