// The question before many cells are asked: what they will cost.

import type { Call } from "relserve-client/calls";
import type { Estimate } from "relserve-client/estimate";

import { element, fillList } from "./dom";
import { count, seconds } from "./make";

/** The dialog; one question at a time. */
export class EstimateDialog {
  private readonly dialog = element("estimate", HTMLDialogElement);
  private readonly list = element("estimate-list", HTMLDListElement);
  private asked: readonly Call[] = [];

  constructor(private readonly estimateOf: (calls: readonly Call[]) => Promise<Estimate>) {}

  /** Asks whether the calls may go out; closing the dialog is a no. */
  ask(calls: readonly Call[]): Promise<boolean> {
    const rows = ["Cells to ask", count(calls.length)] as const;
    fillList(this.list, [rows, ["Tokens and time", "…"]]);
    this.asked = calls;
    void this.estimateOf(calls).then((estimate) => {
      if (this.asked === calls) fillList(this.list, [rows, ...lines(estimate)]);
    });
    this.dialog.returnValue = "";
    this.dialog.showModal();
    return new Promise((resolve) => {
      this.dialog.addEventListener("close", () => resolve(this.dialog.returnValue === "run"), { once: true });
    });
  }
}

function lines({ promptTokens, ownTokens, outputTokensMax, ms }: Estimate): (readonly [string, string])[] {
  return [
    ["Prompt tokens", `about ${count(promptTokens)}; ${count(ownTokens)} are the rows' own, the rest is computed once`],
    ["Answer tokens", `${count(outputTokensMax)} at most`],
    ["Time on an idle server", ms ? `about ${seconds(ms.least)}, at most ${seconds(ms.most)}` : "this server tells no costs"],
  ];
}
