// The question before many cells are asked: what they will cost.

import { type Budget, fitOf } from "relserve-client/budget";
import type { Call } from "relserve-client/calls";
import type { Estimate } from "relserve-client/estimate";

import { t } from "../text";
import { element, fillList } from "./dom";
import { seconds } from "./make";

/** What calls will cost, and what of it the tenant may still compute today, where the server tells that. */
export interface Told {
  estimate: Estimate;
  budget: Budget | undefined;
}

/** The dialog; one question at a time. */
export class EstimateDialog {
  private readonly dialog = element("estimate", HTMLDialogElement);
  private readonly title = element("estimate-title", HTMLHeadingElement);
  private readonly list = element("estimate-list", HTMLDListElement);
  private readonly run = element("estimate-run", HTMLButtonElement);
  private readonly refusal = element("estimate-refusal", HTMLParagraphElement);
  private asked: readonly Call[] = [];

  constructor(private readonly estimateOf: (calls: readonly Call[]) => Promise<Told>) {}

  /** Asks whether the calls may go out; closing the dialog is a no. */
  ask(calls: readonly Call[]): Promise<boolean> {
    this.title.textContent = t.estimate.title(calls.length);
    fillList(this.list, [[t.estimate.pending, "…"]]);
    this.asked = calls;
    this.run.disabled = false;
    this.refusal.textContent = this.refusal.title = "";
    void this.estimateOf(calls).then(({ estimate, budget }) => {
      if (this.asked !== calls) return;
      fillList(this.list, [...lines(estimate), [t.estimate.budget, budget ? budgetLine(budget) : t.estimate.noBudget]]);
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
      this.refusal.textContent = t.estimate.over(estimate.computedTokens - fit.left);
      // For those who can change it.
      this.refusal.title = budget.setting ?? "";
    } else if (fit.kind === "may-not") {
      this.refusal.textContent = t.estimate.mayNotFit(fit.left);
    }
  }
}

function budgetLine({ used, max }: Budget): string {
  if (max === null) return t.estimate.noLimit(used);
  return t.estimate.left(Math.max(0, max - used), max);
}

function lines({ promptTokens, ownTokens, outputTokensMax, ms }: Estimate): (readonly [string, string])[] {
  return [
    [t.estimate.promptTokens, t.estimate.prompt(promptTokens, ownTokens)],
    [t.estimate.answerTokens, t.estimate.atMost(outputTokensMax)],
    [t.estimate.time, ms ? t.estimate.between(seconds(ms.least), seconds(ms.most)) : t.estimate.noCosts],
  ];
}
