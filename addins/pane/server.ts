// What the pane asks the server beside cells: who the key is, its models, and what calls will cost.

import type { Budget } from "relserve-client/budget";
import type { Call } from "relserve-client/calls";
import { type Estimate, type SchedulerCosts, type ServedFunction, estimate } from "relserve-client/estimate";
import { replyError } from "relserve-client/wire";

import type { PaneHost } from "./host";

type Get = Pick<PaneHost, "get">["get"];

async function json<T>(get: Get, path: string): Promise<T> {
  const reply = await get(path);
  if (!reply.ok) throw await replyError(reply);
  return (await reply.json()) as T;
}

/** What a route says; nothing where it cannot be asked. */
async function told<T>(get: Get, path: string): Promise<T | undefined> {
  return json<T>(get, path).catch(() => undefined);
}

/** The models that the key may ask. Throws a `RequestError`, or what the transport throws. */
export async function models(get: Get): Promise<string[]> {
  const { data } = await json<{ data: { id: string }[] }>(get, "/v1/models");
  return data.map(({ id }) => id);
}

/** Whose key it is; nothing where the server does not tell. */
export async function tenant(get: Get): Promise<string | undefined> {
  return (await told<{ tenant?: string }>(get, "/v1/me"))?.tenant;
}

/** What calls will cost, and what of it the tenant may still compute today, where the server tells that. */
export interface Told {
  estimate: Estimate;
  budget: Budget | undefined;
}

/** An estimate of calls, without what the server does not tell. */
export async function estimateOf(get: Get, calls: readonly Call[]): Promise<Told> {
  const [catalogue, costs, usage] = await Promise.all([
    told<{ data?: ServedFunction[] }>(get, "/v1/catalogue"), told<SchedulerCosts>(get, "/v1/scheduler"),
    told<{ cells_day_tokens?: Budget }>(get, "/v1/usage?days=1"),
  ]);
  return { estimate: estimate(calls, catalogue?.data ?? [], costs ?? {}), budget: usage?.cells_day_tokens };
}
