// What runs rows, and what it keeps so that it need not run them again.

import { Server } from "lucide";

import { type Replica, caches, replicas, setDraining } from "../net/people";
import { count, decimal, moment, percent, t } from "../text";
import { type AdminSection, action } from "./admin-parts";
import { fillList } from "./dom";
import { empty, make, row, table } from "./make";

/** Nanoseconds in milliseconds. */
const milliseconds = (nanoseconds: number) => decimal(nanoseconds / 1e6, 3);

/** What went wrong with a replica last, and when. */
function lastError({ last_error: last }: Replica): Node | string {
  if (last === null) return "";
  const at = make("time", { datetime: new Date(last.at_ms).toISOString(), class: "quiet" }, moment(last.at_ms / 1_000, "medium"));
  return make("span", {}, at, " ", make("span", {}, last.message));
}

/** Replicas: their state, what their memory holds, what their rows cost, and out of service and back. */
export class ReplicaSection implements AdminSection {
  readonly title = t.admin.replicas;
  readonly host: HTMLElement;
  private readonly rows = table(t.admin.replicas, t.admin.replicaHeads);

  private readonly none = empty(
    Server, t.admin.noReplicas, t.admin.noReplicasHint, make("code", {}, "[[replicas]]"), ".",
  );

  constructor(private readonly changed: () => void) {
    this.host = make("div", {}, this.rows.host, this.none);
  }

  async refresh(): Promise<void> {
    const all = await replicas();
    this.none.hidden = all.length > 0;
    this.rows.host.hidden = all.length === 0;
    this.rows.body.replaceChildren(...all.map((replica) => this.replica(replica)));
  }

  private replica(replica: Replica): HTMLTableRowElement {
    const isOut = replica.state === "draining";
    const [label, what] = isOut ? [t.admin.takeBack, t.admin.takeBackOf(replica.name)] : [t.admin.drain, t.admin.drainOf(replica.name)];
    const set = action(label, what, () => setDraining(replica.name, !isOut), this.changed);
    const { rows, rows_max: most } = replica.in_flight;
    const { kv, cost } = replica;
    const memory = kv ? t.admin.replicaMemory(count(kv.tokens), kv.source === "reported") : t.admin.replicaUnknown;
    const costs = cost
      ? t.admin.replicaCost(milliseconds(cost.decode_ns), milliseconds(cost.decode_ns_per_sequence), milliseconds(cost.prefill_ns_per_token))
      : t.admin.replicaUnknown;
    const inFlight = t.admin.of(count(rows), count(most));
    return row(replica.name, replica.model, replica.state, inFlight, memory, costs, lastError(replica), set);
  }
}

/** Caches: blocks of keys and values, here and on the host, and prompt tokens that they saved. */
export class CacheSection implements AdminSection {
  readonly title = t.admin.caches;
  readonly host = make("dl", {});

  async refresh(): Promise<void> {
    const { kv_blocks: kv, host_kv_blocks: outside, prompt_tokens: prompt, prefix_hit_tokens: hits } = await caches();
    const share = prompt > 0 ? ` (${percent(hits / prompt)})` : "";
    fillList(this.host, [
      [t.admin.blocksUsed, t.admin.of(count(kv.used), count(kv.total))],
      [t.admin.blocksCached, count(kv.cached)],
      [t.admin.blocksPinned, count(kv.pinned)],
      [t.admin.blocksOnHost, t.admin.of(count(outside.used), count(outside.total))],
      [t.admin.promptTokens, count(prompt)],
      [t.admin.prefixHits, count(hits) + share],
    ]);
  }
}
