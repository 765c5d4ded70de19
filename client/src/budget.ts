// What a tenant's cells may compute in a day, and whether calls fit into what is left of it.

import type { Estimate } from "./estimate";

/** Tokens of prompts and answers that were computed today, as `GET /v1/usage` tells; no most: any amount. */
export interface Budget {
  used: number;
  max: number | null;
  /** The server's setting that bounds it. */
  setting: string | null;
}

/** Whether calls fit: they do, they may not with the longest answers, or surely not; and how many tokens are left. */
export type Fit = { kind: "unlimited" } | { kind: "fits" | "may-not" | "over"; left: number };

/** How calls fit into what is left. */
export function fitOf({ computedTokens, outputTokensMax }: Estimate, { used, max }: Budget): Fit {
  if (max === null) return { kind: "unlimited" };
  const left = Math.max(0, max - used);
  if (computedTokens > left) return { kind: "over", left };
  return { kind: computedTokens + outputTokensMax > left ? "may-not" : "fits", left };
}
