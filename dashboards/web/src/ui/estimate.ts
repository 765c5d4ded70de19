// The question before many cells are asked: what they will cost.

import { type Budget, fitOf } from "relserve-client/budget";
import type { Call } from "relserve-client/calls";
import type { Estimate } from "relserve-client/estimate";

import { element, fillList } from "./dom";
import { count, seconds } from "./make";

/** What calls will cost, and what of it the tenant may still compute today, where the server tells that. */
export interface Told {
  estimate: Estimate;
  budget: Budget | undefined;
}

/** The dialog; one question at a time. */
export class EstimateDialog {
  private readonly dialog = element("estimate", HTMLDialogElement);
  private readonly list = element("estimate-list", HTMLDListElement);
  private readonly run = element("estimate-run", HTMLButtonElement);
  private readonly refusal = element("estimate-refusal", HTMLParagraphElement);
  private asked: readonly Call[] = [];

  constructor(private readonly estimateOf: (calls: readonly Call[]) => Promise<Told>) {}

  /** Asks whether the calls may go out; closing the dialog is a no. */
  ask(calls: readonly Call[]): Promise<boolean> {
    const rows = ["Cells to ask", count(calls.length)] as const;
    fillList(this.list, [rows, ["Tokens and time", "…"]]);
    this.asked = calls;
    this.run.disabled = false;
    this.refusal.textContent = "";
    void this.estimateOf(calls).then(({ estimate, budget }) => {
      if (this.asked !== calls) return;
      fillList(this.list, [rows, ...lines(estimate), ["Budget of today", budget ? budgetLine(budget) : "this server tells none"]]);
      this.hold(estimate, budget);
    });
    this.dialog.returnValue = "";
    this.dialog.showModal();
    return new Promise((resolve) => {
      this.dialog.addEventListener("close", () => resolve(this.dialog.returnValue === "run"), { once: true });
    });
  }

  /** Says what does not fit into the budget, and lets nothing go that surely does not. */
  private hold(estimate: Estimate, budget: Budget | undefined): void {
    if (!budget) return;
    const fit = fitOf(estimate, budget);
    if (fit.kind === "over") {
      // The button is disabled: the keys are for what is left to do.
      if (document.activeElement === this.run) element("estimate-cancel", HTMLButtonElement).focus();
      this.run.disabled = true;
      this.refusal.textContent =
        `Over today's budget: these cells compute about ${count(estimate.computedTokens)} tokens of prompts alone, and ` +
        `${count(fit.left)} are left (${budget.setting ?? "a limit"}). Ask fewer cells, or whoever runs the server for more; ` +
        "the count begins anew at midnight UTC.";
    } else if (fit.kind === "may-not") {
      this.refusal.textContent =
        `With the longest answers these cells compute more than the ${count(fit.left)} tokens that are left today: ` +
        "the last of them may be refused.";
    }
  }
}

function budgetLine({ used, max }: Budget): string {
  if (max === null) return `no limit; ${count(used)} tokens computed so far`;
  return `${count(Math.max(0, max - used))} of ${count(max)} tokens left`;
}

function lines({ promptTokens, ownTokens, outputTokensMax, ms }: Estimate): (readonly [string, string])[] {
  return [
    ["Prompt tokens", `about ${count(promptTokens)}; ${count(ownTokens)} are the rows' own, the rest is computed once`],
    ["Answer tokens", `${count(outputTokensMax)} at most`],
    ["Time on an idle server", ms ? `about ${seconds(ms.least)}, at most ${seconds(ms.most)}` : "this server tells no costs"],
  ];
}
