// The policies by plain names, the one in force, and why. No browser.

import { t } from "../../text";
import type { Hello, Snapshot } from "./events";

const NAMES: Readonly<Record<string, string>> = t.live.policies;

/** The policies that can be asked for, the plainest first. */
export const POLICIES = ["fcfs", "sarathi", "static-priority", "relserve", "relserve-pp", "relserve-dp", "marginal-work"] as const;

/** A policy's plain name. */
export function plainName(policy: string): string {
  return NAMES[policy] ?? policy;
}

/** A policy's plain name with its own. */
export function fullName(policy: string): string {
  const plain = plainName(policy);
  return plain === policy ? policy : `${plain} (${policy})`;
}

/** `Least time left first`, and that the server chose it, where it did. */
export function policyName(hello: Hello | undefined, snapshot: Snapshot | undefined): string {
  const policy = snapshot?.policy ?? hello?.policy;
  if (policy === undefined) return "–";
  return hello?.configured_policy === "auto" ? t.live.chosenByServer(plainName(policy)) : plainName(policy);
}

/** What there is to say about it, as terms and texts. */
export function policyFacts(hello: Hello, snapshot: Snapshot | undefined): [string, string][] {
  const facts: [string, string][] = (hello.limits_of_policy ?? []).map((line) => [t.live.inFront, line]);
  if (snapshot?.choice !== undefined) facts.unshift([t.live.whyPolicy, snapshot.choice]);
  return facts;
}
