// The queue: place, priority, its breakdown, why it changed.

import type { Hello, RelQueryStatus, Snapshot } from "../core/live/events";
import { detail, title } from "../core/live/names";
import { priority } from "../core/live/words";
import { t } from "../text";
import { make, none, row, section, table } from "./make";

/** The queue. */
export class Queue {
  private readonly table = table(t.live.queue, t.live.queueHeads);
  private readonly others = make("p", { class: "quiet" });
  readonly host = section("live-queue", t.live.queue, this.table.host, this.others);

  /** Shows what is held. */
  draw(snapshot: Snapshot | undefined, hello: Hello | undefined, reasons: (id: string) => string[]): void {
    const isFleet = hello?.backend === "fleet";
    const rows = (snapshot?.relqueries ?? []).map((one) => statusRow(one, isFleet, reasons(one.id)));
    this.table.body.replaceChildren(...(rows.length > 0 ? rows : [none(t.live.queueHeads.length, t.live.nothingHeld)]));
    const { relqueries = 0, rows_waiting = 0, rows_running = 0 } = snapshot?.others ?? {};
    const others = hello?.visible_to === "all" ? t.live.othersMore : t.live.others;
    this.others.textContent = relqueries > 0 ? others(relqueries, rows_running, rows_waiting) : "";
    const replicas = snapshot?.replicas ?? [];
    if (replicas.length > 0) {
      const each = replicas.map((one) => t.live.replica(one.name, one.state, one.rows, one.rows_max));
      this.others.textContent += t.live.replicas(each.join("; "));
    }
  }
}

function statusRow(one: RelQueryStatus, isFleet: boolean, reasons: string[]): HTMLElement {
  const { waiting, prefilling, running, submitted } = one.rows;
  const rows = t.live.queueRows(running, prefilling + waiting, submitted);
  const renewed = one.is_new ? t.live.renewed : t.live.isReused;
  const why = make("span", { title: reasons.slice(1).join("\n") }, reasons[0] ?? "");
  const tenant = one.tenant === "you" ? "" : ` ${one.tenant}`;
  const name = make("span", { title: detail(one) }, `${title(one)}${tenant}`);
  return row(one.place, name, one.class, rows, make("span", { title: isFleet ? "" : renewed }, priority(one)), one.breakdown, why);
}
