// The queue: place, priority, its breakdown, why it changed.

import type { Hello, RelQueryStatus, Snapshot } from "../core/live/events";
import { detail, title } from "../core/live/names";
import { priority } from "../core/live/words";
import { make, none, row, section, table } from "./make";

const COLUMNS = ["Place", "relQuery", "Class", "Rows", "Priority", "Breakdown", "Why it changed"];

/** The queue. */
export class Queue {
  private readonly table = table("Queue", COLUMNS);
  private readonly others = make("p", { class: "quiet" });
  readonly host = section("live-queue", "Queue", this.table.host, this.others);

  /** Shows what is held. */
  draw(snapshot: Snapshot | undefined, hello: Hello | undefined, reasons: (id: string) => string[]): void {
    const isFleet = hello?.backend === "fleet";
    const rows = (snapshot?.relqueries ?? []).map((one) => statusRow(one, isFleet, reasons(one.id)));
    this.table.body.replaceChildren(...(rows.length > 0 ? rows : [none(COLUMNS.length, "Nothing of yours waits or runs now. What you ask next stands here, with its priority and why.")]));
    const { relqueries = 0, rows_waiting = 0, rows_running = 0 } = snapshot?.others ?? {};
    const which = hello?.visible_to === "all" ? "more" : "of others";
    this.others.textContent = relqueries > 0 ? `${relqueries} relQueries ${which}: ${rows_running} rows run, ${rows_waiting} wait.` : "";
    const replicas = snapshot?.replicas ?? [];
    if (replicas.length > 0) {
      const each = replicas.map((one) => `${one.name} ${one.state}, ${one.rows} of ${one.rows_max} rows`);
      this.others.textContent += ` Replicas: ${each.join("; ")}.`;
    }
  }
}

function statusRow(one: RelQueryStatus, isFleet: boolean, reasons: string[]): HTMLElement {
  const { waiting, prefilling, running, submitted } = one.rows;
  const rows = `${running} run, ${prefilling + waiting} wait, of ${submitted}`;
  const renewed = one.is_new ? "computed for the last step" : "reused (Eq. 12)";
  const why = make("span", { title: reasons.slice(1).join("\n") }, reasons[0] ?? "");
  const tenant = one.tenant === "you" ? "" : ` ${one.tenant}`;
  const name = make("span", { title: detail(one) }, `${title(one)}${tenant}`);
  return row(one.place, name, one.class, rows, make("span", { title: isFleet ? "" : renewed }, priority(one)), one.breakdown, why);
}
