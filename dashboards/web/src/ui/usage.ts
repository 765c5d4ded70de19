// The usage panel.

import type { Usage } from "relserve-client/usage";

import { count, percent, t } from "../text";
import { element, fillList } from "./dom";
import { seconds } from "./make";

/** The panel lies over the sheet: Escape, or a press beside it, puts it away. */
export function hangUsage(): void {
  const panel = element("usage", HTMLDetailsElement);
  const summary = panel.querySelector("summary");
  // Before the grid, which takes both for its own.
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !panel.open || document.querySelector("dialog:modal")) return;
    panel.open = false;
    if (panel.contains(document.activeElement)) summary?.focus();
  }, true);
  addEventListener("mousedown", ({ target }) => {
    if (panel.open && !panel.contains(target as Node)) panel.open = false;
  }, true);
}

/** Shows what a sheet has cost. */
export function showUsage(usage: Usage): void {
  const cached = usage.promptTokens > 0 ? ` (${percent(usage.cachedTokens / usage.promptTokens)})` : "";
  fillList(element("usage-list", HTMLElement), [
    [t.usage.asked, count(usage.asked)],
    [t.usage.answered, count(usage.answered)],
    [t.usage.failed, count(usage.failed)],
    [t.usage.cancelled, count(usage.cancelled)],
    [t.usage.fromCache, count(usage.fromCache)],
    [t.usage.deduplicated, count(usage.deduplicated)],
    [t.usage.promptTokens, count(usage.promptTokens)],
    [t.usage.cached, count(usage.cachedTokens) + cached],
    [t.usage.answerTokens, count(usage.outputTokens)],
    [t.usage.requests, count(usage.requests)],
    [t.usage.lastTime, seconds(usage.lastMs)],
    [t.usage.totalTime, seconds(usage.totalMs)],
  ]);
}
