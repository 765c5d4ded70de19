// What the AI functions of formulas ask, kept while they wait, and of those that somebody looks at until they are computed
// again: a column of ten thousand cells that fills is computed with each handful of answers, and its calls are the same ones
// each time.

import { type Plan, keyOf, plan } from "relserve-client/calls";
import type { AiFunction } from "relserve-client/catalogue";
import type { Value } from "relserve-client/value";

import type { Node } from "./parse";

/** What a function asks, with the key of each call at its place. */
export interface KeyedPlan extends Plan {
  keys: (string | undefined)[][];
}

/** A function's plan over values of its arguments. */
function keyedPlan(item: AiFunction, args: (Value | undefined)[], model: string | undefined): KeyedPlan {
  const planned = plan(item, args, model);
  return { ...planned, keys: planned.rows.map((row) => row.map((one) => ("call" in one ? keyOf(one.call) : undefined))) };
}

/** The plans of AI functions, by the arguments as they stand in their formula. */
export class Plans {
  private readonly kept = new WeakMap<readonly Node[], { args: (Value | undefined)[]; model: string | undefined; planned: KeyedPlan }>();

  /** The plan; the one of the last time where no argument is another value. Ranges that are the same are the same object. */
  of(item: AiFunction, args: (Value | undefined)[], nodes: readonly Node[], model?: string): KeyedPlan {
    const last = this.kept.get(nodes);
    if (last?.model === model && last?.args.every((arg, i) => arg === args[i])) return last.planned;
    const planned = keyedPlan(item, args, model);
    this.kept.set(nodes, { args, model, planned });
    return planned;
  }

  /** Forgets what has all of its answers. */
  drop(nodes: readonly Node[]): void {
    this.kept.delete(nodes);
  }
}
