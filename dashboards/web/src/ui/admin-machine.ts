// What runs rows, and what it keeps so that it need not run them again.

import { Server } from "lucide";

import { type Replica, caches, replicas, setDraining } from "../net/people";
import { type AdminSection, action, count } from "./admin-parts";
import { fillList } from "./dom";
import { empty, make, row, table } from "./make";

/** Replicas: their state, and out of service and back. */
export class ReplicaSection implements AdminSection {
  readonly title = "Replicas";
  readonly host: HTMLElement;
  private readonly rows = table("Replicas", ["Replica", "Model", "State", "Rows in flight", "Last error", ""]);

  private readonly none = empty(
    Server, "No replicas", "The local engine answers alone. Replicas are named in the server's configuration, ", make("code", {}, "[[replicas]]"), ".",
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
    const label = isOut ? "Take back" : "Drain";
    const set = action(label, `${label} ${replica.name}`, () => setDraining(replica.name, !isOut), this.changed);
    const { rows, rows_max: most } = replica.in_flight;
    return row(replica.name, replica.model, replica.state, `${count(rows)} of ${count(most)}`, replica.last_error?.message ?? "", set);
  }
}

/** Caches: blocks of keys and values, here and on the host, and prompt tokens that they saved. */
export class CacheSection implements AdminSection {
  readonly title = "Caches";
  readonly host = make("dl", {});

  async refresh(): Promise<void> {
    const { kv_blocks: kv, host_kv_blocks: outside, prompt_tokens: prompt, prefix_hit_tokens: hits } = await caches();
    const share = prompt > 0 ? ` (${Math.round((100 * hits) / prompt)} %)` : "";
    fillList(this.host, [
      ["KV blocks in use", `${count(kv.used)} of ${count(kv.total)}`],
      ["KV blocks kept for reuse", count(kv.cached)],
      ["KV blocks pinned by schemas", count(kv.pinned)],
      ["KV blocks in the host's memory", `${count(outside.used)} of ${count(outside.total)}`],
      ["Prompt tokens", count(prompt)],
      ["of them found in the prefix cache", count(hits) + share],
    ]);
  }
}
