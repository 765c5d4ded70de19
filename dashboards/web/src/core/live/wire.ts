// The JSON of `/v1/scheduler/events` and `/v1/scheduler`: the one place that reads it.

import type { Frame, Hello } from "./events";

/** `GET /v1/scheduler`, as far as it is shown. */
export interface Counts {
  policy: string;
  relqueries: { held: number; waiting: number; running: number };
  rows: { waiting: number; running: number };
  kv_blocks: { total: number; used: number; cached: number; free: number };
  steps: number;
  prompt_tokens: number;
  prefix_hit_tokens: number;
  output_tokens: number;
  preemptions: number;
  last_decision: string;
}

/** The data of the event `hello`. */
export function readHello(data: string): Hello {
  return JSON.parse(data) as Hello;
}

/** The data of the event `frame`. */
export function readFrame(data: string): Frame {
  return JSON.parse(data) as Frame;
}
