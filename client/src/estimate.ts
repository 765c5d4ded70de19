// What calls will cost, before any of them is asked: tokens by their characters, time by the cost model that the server
// has fitted to its own steps.

import type { Call } from "./calls";
import { CATALOGUE } from "./catalogue";

/** A function as `GET /v1/catalogue` tells of it. */
export interface ServedFunction {
  name: string;
  template: string;
  max_tokens: number;
}

/** What is used of `GET /v1/scheduler`; a server that tells no costs leaves the time unknown. */
export interface SchedulerCosts {
  cost?: { prefill_ns_per_token: number; prefill_ns: number; decode_ns_per_sequence: number; decode_ns: number };
  limits?: { step_tokens_max: number; sequences_max: number };
}

/** What calls will cost. */
export interface Estimate {
  rows: number;
  /** Prompt tokens, and those of them that each row has for itself: the others are computed once. */
  promptTokens: number;
  ownTokens: number;
  /** Prompt tokens that are computed where the cache knows nothing: what rows share counts once. */
  computedTokens: number;
  /** Most tokens of answers. */
  outputTokensMax: number;
  /** Milliseconds on an idle server, from answers of no further step to the longest ones; none where it tells no costs. */
  ms: { least: number; most: number } | undefined;
}

/** As the server's own estimates: about right for English under most tokenizers. */
const CHARACTERS_PER_TOKEN = 4;

const tokens = (characters: number) => Math.ceil(characters / CHARACTERS_PER_TOKEN);
const length = (value: unknown) => (typeof value === "string" ? value.length : JSON.stringify(value ?? "").length);

/** Estimates calls. */
export function estimate(calls: readonly Call[], served: readonly ServedFunction[], costs: SchedulerCosts): Estimate {
  const functions = new Map(served.map((item) => [item.name, item]));
  const shared = new Set<string>();
  let [promptTokens, ownTokens, sharedTokens, outputTokensMax] = [0, 0, 0, 0];
  for (const { function: name, args } of calls) {
    const over = CATALOGUE.get(`AI.${name.toUpperCase()}`)?.over ?? 0;
    const others = args.filter((_, i) => i !== over);
    const own = tokens(length(args[over]));
    const rest = tokens((functions.get(name)?.template.length ?? 0) + others.reduce<number>((sum, arg) => sum + length(arg), 0));
    const key = JSON.stringify([name, others]);
    if (!shared.has(key)) sharedTokens += rest;
    shared.add(key);
    promptTokens += own + rest;
    ownTokens += own;
    outputTokensMax += functions.get(name)?.max_tokens ?? 0;
  }
  const ms = time(calls.length, ownTokens + sharedTokens, outputTokensMax, costs);
  return { rows: calls.length, promptTokens, ownTokens, computedTokens: ownTokens + sharedTokens, outputTokensMax, ms };
}

/** Every step has its own price, every token and every sequence of a step another (RelServe, Eq. 9). */
function time(rows: number, computed: number, output: number, { cost, limits }: SchedulerCosts): Estimate["ms"] {
  if (!cost || !limits || cost.prefill_ns_per_token <= 0) return undefined;
  const least = computed * cost.prefill_ns_per_token + Math.ceil(computed / limits.step_tokens_max) * cost.prefill_ns;
  const steps = Math.ceil(output / Math.max(1, Math.min(rows, limits.sequences_max)));
  const answers = output * cost.decode_ns_per_sequence + steps * cost.decode_ns;
  return { least: least / 1e6, most: (least + answers) / 1e6 };
}
