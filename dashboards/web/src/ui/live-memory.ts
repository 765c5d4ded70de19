// KV blocks by kind and by tenant, the tenants' shares of the machine, and the counts as curves.

import type { Snapshot } from "../core/live/events";
import { type LiveModel, type Point, POINTS_MAX } from "../core/live/model";
import { shares } from "../core/live/summary";
import { span } from "../core/live/words";
import { decimal, percent, t } from "../text";
import { legend, make, none, place, row, section, table } from "./make";

const KINDS = (["shared", "private", "independent", "pinned", "cached", "free"] as const).map((kind) => [kind, t.live.memory[kind]] as const);

/** Steps that count for the shares: those of the last minute. */
const WINDOW_US = 60e6;

/** A bar of parts with words beside it. */
function split(label: string, parts: readonly { name: string; mark: string; part: number }[]): HTMLElement {
  const track = make("div", { class: "track", role: "img", "aria-label": label });
  let from = 0;
  for (const { name, mark, part } of parts) {
    const piece = make("i", { class: mark, title: name });
    place(piece, from, part);
    from += part;
    track.append(piece);
  }
  return track;
}

/** KV blocks by kind, and the tenants whose rows hold them. */
export class KvMemory {
  private readonly bar = make("div", {});
  private readonly table = table(t.live.blocksByTenant, t.live.blocksHeads);
  readonly host = section("live-memory", t.live.blocks, this.bar, legend(KINDS.map(([kind, text]) => [`kv-${kind}`, text])), this.table.host);

  /** Shows a snapshot. */
  draw(snapshot: Snapshot | undefined, isFleet: boolean): void {
    if (!snapshot || snapshot.kv.total === 0) {
      this.bar.replaceChildren(make("p", { class: "quiet" }, isFleet ? t.live.memoryOfReplicas : t.live.noMemory));
      return;
    }
    const { kv } = snapshot;
    const words = KINDS.map(([kind, text]) => `${kv[kind]} ${text}`).join(", ");
    const tier = kv.host_total > 0 ? t.live.hostBlocks(kv.host, kv.host_total) : "";
    const parts = KINDS.map(([kind, text]) => ({ name: `${kv[kind]} ${text}`, mark: `kv-${kind}`, part: kv[kind] / kv.total }));
    this.bar.replaceChildren(split(t.live.blocksAll(kv.total, words), parts), make("p", {}, `${t.live.blocksAll(kv.total, words)}.${tier}`));
    const rows = kv.held.map(({ tenant, blocks }) => row(tenant, blocks, percent(blocks / kv.total, 1)));
    this.table.body.replaceChildren(...(rows.length > 0 ? rows : [none(3, t.live.nobody)]));
  }
}

/** Each tenant's share of the machine's time. */
export class Shares {
  private readonly table = table(t.live.shares, t.live.sharesHeads);
  readonly host = section("live-shares", t.live.shares, this.table.host);

  /** Shows the last minute. */
  draw(model: LiveModel, isFleet: boolean): void {
    const all = shares(model.steps, model.now - WINDOW_US);
    const rows = all.map(({ tenant, took_us, part }) => {
      const share = percent(part, 1);
      return row(tenant, span(took_us), share, split(`${tenant}: ${share}`, [{ name: tenant, mark: "core", part }]));
    });
    const why = isFleet ? t.live.sharesUnknown : t.live.noStepLately;
    this.table.body.replaceChildren(...(rows.length > 0 ? rows : [none(4, why)]));
  }
}

/** Numbers in large. */
export function tiles(host: HTMLElement, entries: readonly (readonly [string, string])[]): void {
  host.replaceChildren(...entries.map(([name, value]) => make("div", { class: "tile" }, make("b", {}, value), name)));
}

/** The counts over time. */
export function curves(host: HTMLElement, points: readonly Point[]): void {
  const rate = (read: (point: Point) => number) => points.slice(1).map((point, i) => {
    const before = points[i] ?? point;
    const seconds = (point.at_us - before.at_us) / 1e6;
    return seconds > 0 ? Math.max(0, (read(point) - read(before)) / seconds) : 0;
  });
  if (points.length < 2) return host.replaceChildren();
  host.replaceChildren(
    chart(t.live.curveWaiting, points.map((point) => point.waiting)),
    chart(t.live.curveRunning, points.map((point) => point.running)),
    chart(t.live.curvePrompt, rate((point) => point.prompt)),
    chart(t.live.curveAnswer, rate((point) => point.output)),
    chart(t.live.curveSteps, rate((point) => point.steps)),
  );
}

function chart(name: string, values: number[]): HTMLElement {
  const most = Math.max(1, ...values);
  const now = values.at(-1) ?? 0;
  const title = t.live.curve(name, decimal(now, now < 10 && now % 1 !== 0 ? 1 : 0), decimal(most, 0));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${POINTS_MAX} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", title);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const at = (i: number, value: number) => `${POINTS_MAX - values.length + i},${(98 - (96 * value) / most).toFixed(1)}`;
  line.setAttribute("points", values.map((value, i) => at(i, value)).join(" "));
  svg.append(line);
  return make("section", {}, make("p", {}, title), svg);
}
