// The JSON of `/v1/scheduler/events` and `/v1/scheduler`: the one place that knows the server's names of its
// fields.

import type { Ended, Frame, Hello, RelQueryStatus, Share, Snapshot, Step } from "./events";

type WireHello = Omit<Hello, "backend" | "visible_to" | "snapshot_ms"> & {
  plant: Hello["backend"];
  sees: Hello["visible_to"];
  survey_ms: number;
};
type Owned<T> = Omit<T, "tenant"> & { whose: string };
type WireStep = Omit<Step, "draft_tokens" | "shares"> & { guesses?: number; shares: Owned<Share>[] };
type WireStatus = Owned<Omit<RelQueryStatus, "breakdown">> & { made_of: string };
type Held = Snapshot["kv"]["held"][number];
type WireSnapshot = Omit<Snapshot, "relqueries" | "kv" | "replicas"> & {
  relqueries: WireStatus[];
  kv: Omit<Snapshot["kv"], "held"> & { held: Owned<Held>[] };
  executors?: NonNullable<Snapshot["replicas"]>;
};
type WireFrame = Omit<Frame, "steps" | "ended" | "snapshot"> & {
  steps: WireStep[];
  ended: Owned<Ended>[];
  scene?: WireSnapshot;
};

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
  const { plant, sees, survey_ms, ...same } = JSON.parse(data) as WireHello;
  return { ...same, backend: plant, visible_to: sees, snapshot_ms: survey_ms };
}

/** The data of the event `frame`. */
export function readFrame(data: string): Frame {
  const { steps, ended, scene, ...same } = JSON.parse(data) as WireFrame;
  return {
    ...same,
    steps: steps.map(readStep),
    ended: ended.map(readOwned) as Ended[],
    ...(scene && { snapshot: readSnapshot(scene) }),
  };
}

type Renamed<T> = Omit<T, "whose"> & { tenant: string };

function readOwned<T extends { whose: string }>({ whose, ...same }: T): Renamed<T> {
  return { ...same, tenant: whose };
}

function readStep({ guesses, shares, ...same }: WireStep): Step {
  return { ...same, shares: shares.map(readOwned), ...(guesses !== undefined && { draft_tokens: guesses }) };
}

function readSnapshot({ relqueries, kv, executors, ...same }: WireSnapshot): Snapshot {
  return {
    ...same,
    relqueries: relqueries.map(readStatus),
    kv: { ...kv, held: kv.held.map(readOwned) },
    ...(executors && { replicas: executors }),
  };
}

function readStatus({ made_of, ...same }: WireStatus): RelQueryStatus {
  return { ...readOwned(same), breakdown: made_of };
}
