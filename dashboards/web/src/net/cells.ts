// One batch of cell calls over the wire: POST /v1/cells with `stream: true`, each cell as it finishes.

import { type Answer, requestOf } from "relserve-client/calls";
import type { Label, LabelledCall } from "relserve-client/labels";
import type { ServerUsage } from "relserve-client/usage";
import { RequestError, failure, headers, readCells } from "relserve-client/wire";

import { t } from "../text";

/** Whether a server answers; a silent one counts as none after this time. */
const PROBE_MS = 1_250;

/** Whether a server is there, behind whatever proxies stand before it. */
export async function probe(silentMs = PROBE_MS): Promise<boolean> {
  try {
    const { status } = await fetch("healthz", { cache: "no-store", signal: AbortSignal.timeout(silentMs) });
    return !new RequestError("", status, undefined).isUnreachable;
  } catch {
    return false;
  }
}

/**
 * Runs calls; `onCell` is told each answer as it comes, `onHeard` of any life. Gives the usage at the end. With
 * `isFresh` the model is asked also where the server has the answer in its result cache.
 */
export async function runCells(
  calls: LabelledCall[], key: string, signal: AbortSignal, onCell: (index: number, answer: Answer) => void,
  onHeard: () => void, labels: Label[], isFresh = false,
): Promise<ServerUsage> {
  let response: Response;
  try {
    response = await fetch("v1/cells?details=true", {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers(key) },
      body: JSON.stringify({ ...requestOf(calls), labels, stream: true, ...(isFresh ? { cache: false } : {}) }),
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new RequestError(t.unreachable, 0, undefined);
  }
  if (response.ok) onHeard();
  const done = await readCells<{ usage?: ServerUsage }>(response, signal, ({ index, value, error, details }) =>
    onCell(index, { ...(error ? { error: failure(error) } : { value: value ?? "" }), ...(details ? { details } : {}) }), onHeard,
  );
  return done.usage ?? {};
}
