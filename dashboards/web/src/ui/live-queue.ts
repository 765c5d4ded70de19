// RelQueries over time, and the queue they stand in.

import type { Hello, RelQueryStatus, Snapshot } from "../core/live/events";
import type { Bar, LiveModel } from "../core/live/model";
import { segments } from "../core/live/summary";
import { label, periods, priority, span } from "../core/live/words";
import { legend, make, place, row, section, table } from "./make";

/** The stretch that the bars show at most, in microseconds. */
const WINDOW_US = 60e6;
const BARS_SHOWN = 20;

/** A bar of waiting, core and tail for each relQuery (RelServe, Eq. 2). */
export class Bars {
  private readonly table = table("relQueries over time", ["relQuery", "Rows", "Time", "Periods"]);
  private readonly axis = make("p", { class: "quiet" });
  readonly host = section(
    "live-bars", "relQueries over time",
    legend([["waiting", "waiting: before the first prefill"], ["core", "core: prompts are computed"],
      ["tail", "tail: only answers are left"], ["cancelled", "called off"]]),
    this.table.host, this.axis,
  );

  /** Shows what is known. */
  draw(model: LiveModel): void {
    const bars = model.bars().slice(0, BARS_SHOWN);
    const now = model.now;
    const first = Math.min(now, ...bars.map((bar) => bar.arrival_us));
    const from = Math.max(first, now - WINDOW_US);
    const width = Math.max(now - from, 1);
    this.table.body.replaceChildren(...(bars.length > 0 ? bars.map((bar) => this.bar(bar, now, from, width)) : [row("none yet", "", "", "")]));
    this.axis.textContent = bars.length > 0 ? `Time: the last ${span(width)}, now at the right.` : "";
  }

  private bar(bar: Bar, now: number, from: number, width: number): HTMLElement {
    const words = periods(bar, now);
    const track = make("div", { class: "track time", role: "img", "aria-label": `${label(bar)}: ${words}` });
    for (const part of segments(bar, now)) {
      const [start, end] = [Math.max(part.from, from), Math.max(part.to, from)];
      if (end <= from) continue;
      const piece = make("i", { class: part.kind, title: `${part.kind} ${span(part.to - part.from)}` });
      place(piece, (start - from) / width, Math.max((end - start) / width, 0.002));
      track.append(piece);
    }
    const failed = bar.failed > 0 ? `, ${bar.failed} failed` : "";
    const name = make("span", { title: bar.request ? `request ${bar.request}` : "rows of several requests" }, label(bar));
    const tenant = bar.tenant === "you" ? "" : ` ${bar.tenant}`;
    const state = bar.end_us === undefined ? "" : `${bar.period}: `;
    return row(make("span", {}, name, tenant), `${bar.done} of ${bar.rows}${failed}`, track, `${state}${words}`);
  }
}

/** The queue: place, priority, its breakdown, why it changed. */
export class Queue {
  private readonly table = table("Queue", ["Place", "relQuery", "Class", "Rows", "Priority", "Breakdown", "Why it changed"]);
  private readonly others = make("p", { class: "quiet" });
  readonly host = section("live-queue", "Queue", this.table.host, this.others);

  /** Shows what is held. */
  draw(snapshot: Snapshot | undefined, hello: Hello | undefined, reasons: (id: string) => string[]): void {
    const isFleet = hello?.backend === "fleet";
    const rows = (snapshot?.relqueries ?? []).map((one) => statusRow(one, isFleet, reasons(one.id)));
    this.table.body.replaceChildren(...(rows.length > 0 ? rows : [row("", "nothing of yours is held", "", "", "", "", "")]));
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
  return row(one.place, `${label(one)}${tenant}`, one.class, rows, make("span", { title: isFleet ? "" : renewed }, priority(one)), one.breakdown, why);
}
