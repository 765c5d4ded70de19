// What the server tells of its costs, and of what the tenant may still compute today, for calls that were not asked yet.

import type { Budget } from "relserve-client/budget";
import type { Call } from "relserve-client/calls";
import { type Estimate, type SchedulerCosts, type ServedFunction, estimate } from "relserve-client/estimate";

import { ofModel, told } from "./told";

/** An estimate of calls, with the budget of the day; without what a server does not tell. */
export async function estimateOf(calls: readonly Call[]): Promise<{ estimate: Estimate; budget: Budget | undefined }> {
  const [catalogue, costs, usage] = await Promise.all([
    told<{ data?: ServedFunction[] }>("v1/catalogue"), told<SchedulerCosts>(`v1/scheduler${ofModel(calls[0]?.model)}`),
    told<{ cells_day_tokens?: Budget }>("v1/usage?days=1"),
  ]);
  return { estimate: estimate(calls, catalogue?.data ?? [], costs ?? {}), budget: usage?.cells_day_tokens };
}
