// The usage panel.

import type { Usage } from "relserve-client/usage";

import { element, fillList } from "./dom";
import { count, seconds } from "./make";

/** Shows what a sheet has cost. */
export function showUsage(usage: Usage): void {
  const cached = usage.promptTokens > 0 ? ` (${Math.round((100 * usage.cachedTokens) / usage.promptTokens)} %)` : "";
  fillList(element("usage-list", HTMLElement), [
    ["Cells asked", count(usage.asked)],
    ["Answered", count(usage.answered)],
    ["Failed", count(usage.failed)],
    ["Cancelled", count(usage.cancelled)],
    ["From the server's cache", count(usage.fromCache)],
    ["Computed once for several", count(usage.deduplicated)],
    ["Prompt tokens", count(usage.promptTokens)],
    ["of them cached", count(usage.cachedTokens) + cached],
    ["Answer tokens", count(usage.outputTokens)],
    ["Requests", count(usage.requests)],
    ["Time, last request", seconds(usage.lastMs)],
    ["Time, all requests", seconds(usage.totalMs)],
  ]);
}
