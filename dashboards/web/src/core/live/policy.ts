// The policies by plain names, the one in force, and why. No browser.

import type { Hello, Snapshot } from "./events";

/** What each policy does, in the words of people who do not read papers; its own name stays beside it. */
const NAMES: Readonly<Record<string, string>> = {
  fcfs: "First come, first served",
  sarathi: "First come, first served, prompts in pieces",
  "static-priority": "Shortest first, judged once",
  relserve: "Least time left first",
  "relserve-pp": "Least time left first, new rows before answers",
  "relserve-dp": "Least time left first, answers before new rows",
  "marginal-work": "Least work added first",
  auto: "Chosen by the server",
};

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
  return hello?.configured_policy === "auto" ? `${plainName(policy)}, chosen by the server` : plainName(policy);
}

/** What there is to say about it, as terms and texts. */
export function policyFacts(hello: Hello, snapshot: Snapshot | undefined): [string, string][] {
  const facts: [string, string][] = (hello.limits_of_policy ?? []).map((line) => ["In front of servers", line]);
  if (snapshot?.choice !== undefined) facts.unshift(["Why this policy", snapshot.choice]);
  return facts;
}
