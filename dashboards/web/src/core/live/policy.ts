// The policy in force, and why. No browser.

import type { Hello, Snapshot } from "./events";

/** `relserve`, or `auto: relserve` where the server chose it. */
export function policyName(hello: Hello | undefined, snapshot: Snapshot | undefined): string {
  const name = snapshot?.policy ?? hello?.policy ?? "–";
  return hello?.configured_policy === "auto" ? `auto: ${name}` : name;
}

/** What there is to say about it, as terms and texts. */
export function policyFacts(hello: Hello, snapshot: Snapshot | undefined): [string, string][] {
  const facts: [string, string][] = (hello.limits_of_policy ?? []).map((line) => ["In front of servers", line]);
  if (snapshot?.choice !== undefined) facts.unshift(["Why this policy", snapshot.choice]);
  return facts;
}
