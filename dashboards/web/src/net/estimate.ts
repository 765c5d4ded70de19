// What the server tells of its costs, for an estimate of calls that were not asked yet.

import type { Call } from "relserve-client/calls";
import { type Estimate, type SchedulerCosts, type ServedFunction, estimate } from "relserve-client/estimate";
import { headers } from "relserve-client/wire";

import { storedKey } from "../store/key";

/** An estimate of calls; without what a server does not tell. */
export async function estimateOf(calls: readonly Call[]): Promise<Estimate> {
  const [catalogue, costs] = await Promise.all([
    told<{ data?: ServedFunction[] }>("v1/catalogue"), told<SchedulerCosts>("v1/scheduler"),
  ]);
  return estimate(calls, catalogue?.data ?? [], costs ?? {});
}

/** What a route says; nothing where it cannot be asked. */
async function told<T>(path: string): Promise<T | undefined> {
  try {
    const response = await fetch(path, { headers: headers(storedKey()) });
    return response.ok ? ((await response.json()) as T) : undefined;
  } catch {
    return undefined;
  }
}
