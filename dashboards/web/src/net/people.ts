// Who calls, links that sign somebody in, and what operators see and change: docs/API.md has the routes.

import type { ReplicaCost, ReplicaKv } from "../core/live/events";
import type { KeyScope } from "../core/key-rights";
import type { Page } from "../core/pages";
import type { TenantLimits } from "../core/tenant-limits";
import type { UsagePage } from "../core/usage-reading";
import { storedKey } from "../store/key";
import { type List, call } from "./api";

/** Who calls. */
export interface Caller {
  tenant: string;
  operator: boolean;
  /** What tells the tenant's workbooks from all others'. */
  workbooks: string;
}

/** An amount, its bound, and the setting that sets it. */
export interface Amount {
  used: number;
  max: number | null;
  setting: string | null;
}

/** A tenant and what it has. */
export interface Tenant extends TenantLimits {
  name: string;
  weight: number;
  keys: number;
  workbooks: Amount;
  workbook_bytes: Amount;
  cached_answers: number;
  sql_day_tokens: Amount;
  sql_day_calls: Amount;
}

/** A key; times are unix seconds. */
export interface Key extends KeyScope {
  id: number;
  name: string;
  tenant: string;
  shown: string;
  created: number;
  last_used: number | null;
  expires: number | null;
  revoked: number | null;
  /** Told once. */
  key?: string;
}

/** What runs rows. */
export interface Replica {
  name: string;
  model: string;
  kind: string;
  state: string;
  in_flight: { rows: number; rows_max: number };
  kv: ReplicaKv | null;
  cost: ReplicaCost | null;
  last_error: { message: string; at_ms: number } | null;
}

/** The blocks of keys and values, and what they saved. */
export interface CacheView {
  kv_blocks: { total: number; used: number; cached: number; free: number; pinned: number };
  host_kv_blocks: { total: number; used: number };
  prompt_tokens: number;
  prefix_hit_tokens: number;
}

const data = async <T>(path: string) => (await call<List<T>>("GET", path)).data;
/** Entries of a page of a list: what a table draws at once without a pause that is felt. */
const PAGE_ROWS = 100;
/** Reads a list page by page; what is sought is the beginning of a name. */
const pagesOf = <T>(path: string) => (sought: string, before: number | undefined) => {
  const query = new URLSearchParams({ rows: String(PAGE_ROWS) });
  if (sought !== "") query.set("name", sought);
  if (before !== undefined) query.set("before", String(before));
  return call<Page<T>>("GET", `${path}?${query.toString()}`);
};

/** Who has a key, by default the page's. */
export const me = (key = storedKey()) => call<Caller>("GET", "v1/me", { key });
/** Exchanges a link's token; no key goes along. */
export const signIn = (token: string) =>
  call<{ key: string; tenant: string; operator: boolean }>("POST", "v1/sign-in", { body: { token }, key: "" });

/** Tenants, or those whose names begin so. */
export const tenantPage = pagesOf<Tenant>("v1/tenants");
export const createTenant = (name: string, weight: number) => call("POST", "v1/tenants", { body: { name, weight } });
export const setWeight = (name: string, weight: number) =>
  call("POST", `v1/tenants/${encodeURIComponent(name)}`, { body: { weight } });
/** Sets a tenant's limits: those that are not named bound nothing. */
export const setLimits = (name: string, limits: object) =>
  call("POST", `v1/tenants/${encodeURIComponent(name)}`, { body: { limits } });
/** Keys, or those whose names or tenants' names begin so. */
export const keyPage = pagesOf<Key>("v1/keys");
export const createKey = (wanted: { name: string; tenant: string; days?: number; operator: boolean }) =>
  call<Key>("POST", "v1/keys", { body: wanted });
export const revokeKey = (id: number) => call("DELETE", `v1/keys/${id}`);
export const invite = (tenant: string, operator: boolean) =>
  call<{ path: string }>("POST", "v1/sign-in/links", { body: { tenant, operator } });
/** Sums of a page of usage: what a browser takes in at once without a pause that is felt. */
const USAGE_ROWS = 20_000;
export const usage = (days: number, before?: string) =>
  call<UsagePage>("GET", `v1/usage/tenants?days=${days}&rows=${USAGE_ROWS}${before === undefined ? "" : `&before=${encodeURIComponent(before)}`}`);
export const replicas = () => data<Replica>("v1/replicas");
export const setDraining = (name: string, on: boolean) =>
  call("POST", `v1/replicas/${encodeURIComponent(name)}/${on ? "drain" : "resume"}`);
export const caches = () => call<CacheView>("GET", "v1/scheduler");
