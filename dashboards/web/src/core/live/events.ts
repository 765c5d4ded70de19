// What the server's stream tells (`docs/LIVE.md`), in the words of the page. `wire.ts` reads it out of the
// stream's JSON.

import type { Label } from "relserve-client/labels";

/** The first event of a stream. */
export interface Hello {
  policy: string;
  configured_policy: string;
  /** What the configured policy cannot do where rows run, in words. */
  limits_of_policy?: string[];
  backend: "engine" | "fleet";
  visible_to: "own" | "all";
  frame_ms: number;
  snapshot_ms: number;
  at_us: number;
}

/** A tenant's part of a step. */
export interface Share {
  tenant: string;
  prefill_rows: number;
  prefill_tokens: number;
  decode_rows: number;
  took_us: number;
}

/** The first relQuery of a list, as a step saw it. */
interface Head {
  id?: string;
  priority: number;
}

/** One step of the model. */
export interface Step {
  step: number;
  kind: "prefill" | "decode" | "mixed";
  start_us: number;
  took_us: number;
  scheduling_us: number;
  gap_us?: number;
  failed?: boolean;
  prefill: { rows: number; tokens: number };
  decode_rows: number;
  draft_tokens?: number;
  preempted?: number;
  reason: string;
  delta?: { total_us: number; lost_us: number; gained_us: number };
  candidate?: { relqueries: number; rows: number; tokens: number };
  running: { relqueries: number; rows: number };
  front?: Head;
  first_running?: Head;
  shares: Share[];
}

/** What a relQuery is for, in its client's words. */
export interface RelQueryLabel extends Label {
  sql?: string;
  /** What an API client calls itself. */
  client?: string;
}

/** What a relQuery is told apart by. */
export interface RelQueryIdentity {
  id: string;
  tenant: string;
  route: string;
  request?: string;
  class: string;
  label?: RelQueryLabel;
}

/** A relQuery that ended. */
export interface Ended extends RelQueryIdentity {
  arrival_us: number;
  end_us: number;
  outcome: "completed" | "cancelled";
  rows: number;
  failed_rows: number;
  /** Called off before their end. */
  cancelled_rows: number;
  prompt_tokens: number;
  output_tokens: number;
  periods?: { waiting_us: number; core_us: number; tail_us: number };
}

/** The period of RelServe's Eq. 2 in which a relQuery is. */
export type Period = "waiting" | "core" | "tail";

/** A relQuery that waits or runs. */
export interface RelQueryStatus extends RelQueryIdentity {
  place: number;
  period: Period;
  arrival_us: number;
  started_us?: number;
  prefilled_us?: number;
  rows: { submitted: number; waiting: number; prefilling: number; running: number; ended: number };
  priority: number;
  /** `ns`; `aged`: work made less by waiting, no time any more; `tokens`. */
  unit: "ns" | "aged" | "tokens";
  is_new: boolean;
  breakdown: string;
  why?: string;
}

/** Queue and memory at one moment. */
export interface Snapshot {
  at_us: number;
  /** The policy in force. */
  policy?: string;
  /** What policy `auto` chose it by, in words; told to operators. */
  choice?: string;
  relqueries: RelQueryStatus[];
  others: { relqueries: number; rows_waiting: number; rows_running: number };
  rows_waiting: number;
  rows_running: number;
  kv: {
    total: number; private: number; shared: number; independent: number;
    pinned: number; cached: number; free: number;
    /** Blocks of the host tier in use, and all of it; not of `total`. */
    host: number; host_total: number;
    held: { tenant: string; blocks: number }[];
  };
  prompt_tokens: number;
  prefix_hit_tokens: number;
  output_tokens: number;
  steps: number;
  preemptions: number;
  replicas?: {
    name: string; state: string; rows: number; rows_max: number; tokens: number;
    kv: ReplicaKv | null; cost: ReplicaCost | null;
  }[];
}

/** Tokens that a replica's KV memory holds, and how that is known. */
export interface ReplicaKv { tokens: number; source: "configured" | "reported" }

/** What a replica's rows cost: for each token of output, for each row beside it, and for each prompt token. */
export interface ReplicaCost { decode_ns: number; decode_ns_per_sequence: number; prefill_ns_per_token: number }

/** A relQuery as a decision found it; of another tenant's there is no name. */
export interface Contender extends Partial<RelQueryIdentity> {
  arrival_us: number;
  /** Rows that had not ended. */
  rows: number;
  /** Rows of which nothing had been computed. */
  waiting_rows: number;
  /** Machine time that its priority says was left; absent where priorities are no times. */
  work_us?: number;
  is_urgent?: boolean;
}

/** A relQuery began, and left another waiting. */
export interface Decision {
  at_us: number;
  policy: string;
  first: Contender;
  rival?: Contender;
}

/** What happened since the frame before. */
export interface Frame {
  at_us: number;
  lost_steps: number;
  steps: Step[];
  decisions: Decision[];
  ended: Ended[];
  snapshot?: Snapshot;
}
