// The pane's sentences about runs, costs and failures.

import { type Budget, fitOf } from "relserve-client/budget";
import type { RunView } from "relserve-client/run-progress";
import type { RequestError } from "relserve-client/wire";

import type { Tokens } from "../shared/engine";
import type { Told } from "./server";

/** A number with its thousands apart. */
export const count = (value: number) => value.toLocaleString("en");

/** Milliseconds as a person says them. */
export function duration(ms: number): string {
  const seconds = Math.round(ms / 1_000);
  if (seconds < 1) return "under a second";
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

const cells = (number: number) => `${count(number)} ${number === 1 ? "cell" : "cells"}`;

/** A run's line. */
export function runLine(view: Exclude<RunView, { kind: "idle" }>): string {
  if (view.kind === "ended") {
    const { most, failed, stopped, tookMs } = view;
    if (stopped > 0) return `Stopped: ${count(most - stopped)} of ${cells(most)} are answered and stay.`;
    const but = failed > 0 ? `, ${count(failed)} of them without an answer` : "";
    return `${cells(most)} in ${duration(tookMs)}${but}.`;
  }
  const { kind, done, most, failed, leftMs } = view;
  if (kind === "reconnecting") return `Reconnecting: the server is away. ${count(done)} of ${cells(most)} are done; the rest goes on by itself.`;
  const bad = failed > 0 ? `, ${count(failed)} failed` : "";
  const left = leftMs === undefined ? "" : `, ${duration(leftMs)} left`;
  return `${count(done)} of ${cells(most)}${bad}${left}`;
}

/** What tokens a session has used. */
export function tokensLine({ prompt, output }: Tokens): string {
  return `${count(prompt)} prompt and ${count(output)} answer tokens so far`;
}

/** What went wrong with whole requests, and what to do. */
export function problemLine(error: RequestError): string {
  if (error.status === 401 && error.code !== "no_server") return "The server does not know this key. Sign in with another, and failed cells are asked again.";
  if (error.isSpent) {
    return "Today's token budget is spent (limits.tenant_day_cell_tokens_max). What is answered stays. The budget begins anew at midnight UTC; " +
      "whoever runs the server can raise it.";
  }
  return `${error.message[0]?.toUpperCase() ?? ""}${error.message.slice(1)}.`.replace(/\.\.$/, ".");
}

/** An estimate as terms and texts. */
export function estimateLines({ estimate, budget }: Told): [string, string][] {
  const { rows, promptTokens, ownTokens, outputTokensMax, ms } = estimate;
  return [
    ["Cells to ask", count(rows)],
    ["Prompt tokens", `about ${count(promptTokens)}, of which ${count(ownTokens)} are the rows' own`],
    ["Answer tokens", `${count(outputTokensMax)} at most`],
    ["Time", ms ? `${duration(ms.least)} to ${duration(ms.most)} on an idle server` : "this server tells no costs"],
    ["Budget of today", budget ? budgetLine(budget) : "this server tells none"],
  ];
}

function budgetLine({ used, max }: Budget): string {
  return max === null ? "no limit" : `${count(Math.max(0, max - used))} of ${count(max)} tokens left`;
}

/** What does not fit into the budget, and whether it surely does not; nothing where all fits. */
export function refusal({ estimate, budget }: Told): { words: string; isOver: boolean } | undefined {
  const fit = budget && fitOf(estimate, budget);
  if (fit?.kind === "over") {
    const words = `Over today's budget: ${count(fit.left)} tokens are left (${budget?.setting ?? "a limit"}). ` +
      "Ask fewer rows, or whoever runs the server for more.";
    return { words, isOver: true };
  }
  if (fit?.kind !== "may-not") return undefined;
  return { words: `With the longest answers this is more than the ${count(fit.left)} tokens left today: the last cells may be refused.`, isOver: false };
}
