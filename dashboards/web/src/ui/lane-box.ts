// A lane chart with what hands need to use it: its buttons, what is shown in words, and the same as a table for those who do
// not see the chart. The chart itself is loaded when it is first drawn.

import { t } from "../text";
import type { LaneChart, LaneView, Range } from "./lane-chart";
import { legend, make, row, table } from "./make";

const LEGEND = (["waiting", "core", "tail", "cancelled"] as const).map((kind) => [kind, t.live.legend[kind]] as const);

/** The words of a lane's stretches. */
export type LaneRow = (Node | string | number)[];

/** The box. */
export class LaneBox {
  private readonly area = make("div", { class: "lanes", role: "img" });
  /** Written with each drawing, several times a second: nobody listens to that. */
  private readonly shown = make("output", { class: "quiet", "aria-live": "off" });
  private readonly none = make("p", { class: "quiet" });
  private readonly rows: ReturnType<typeof table>;
  private readonly details: HTMLDetailsElement;
  private readonly buttons: HTMLElement;
  private readonly more: HTMLElement;
  readonly host: HTMLElement;
  private chart: LaneChart | undefined;
  private isLoading = false;
  private next: LaneView | undefined;
  private cells: () => LaneRow[] = () => [];
  private wasZoomed = false;
  /** Told when somebody has chosen what is shown. */
  onZoom: () => void = () => undefined;

  constructor(id: string, private readonly label: string, heads: readonly string[], ...more: Node[]) {
    this.rows = table(label, heads);
    this.details = make("details", { id: `${id}-table` }, make("summary", {}, t.live.table), this.rows.host);
    this.details.addEventListener("toggle", () => this.fill());
    const act: [string, string, (chart: LaneChart) => void][] = [
      ["in", t.live.zoomIn, (chart) => chart.zoom(0.5)], ["out", t.live.zoomOut, (chart) => chart.zoom(2)],
      ["earlier", t.live.earlier, (chart) => chart.pan(-0.5)], ["later", t.live.later, (chart) => chart.pan(0.5)], ["all", t.live.all, (chart) => chart.all()],
    ];
    this.buttons = make("div", { class: "line", role: "group", "aria-label": t.live.zoomOf(label) }, ...act.map(([name, text, then]) => {
      const button = make("button", { type: "button", id: `${id}-${name}` }, text);
      button.addEventListener("click", () => this.chart && then(this.chart));
      return button;
    }), this.shown, make("span", { class: "quiet hint" }, t.live.zoomHint));
    this.shown.id = `${id}-shown`;
    this.more = make("div", {}, ...more);
    this.host = make("div", { class: "lane-box" }, legend(LEGEND), this.none, this.area, this.buttons, this.more, this.details);
  }

  /** Whether somebody has chosen what is shown. */
  get isZoomed(): boolean {
    return this.chart?.isZoomed ?? false;
  }

  /** Shows all that there is. */
  showAll(): void {
    this.chart?.all();
  }

  /** Draws lanes and their table; `empty` where there is none. */
  draw(view: LaneView, rows: () => LaneRow[], empty: string): void {
    const has = view.names.length > 0;
    for (const part of [this.area, this.buttons, this.more, this.details]) part.hidden = !has;
    this.none.hidden = has;
    this.none.textContent = empty;
    this.cells = has ? rows : () => [[empty]];
    this.fill();
    this.area.setAttribute("aria-label", has ? t.live.lanesOf(this.label, view.names.length) : this.label);
    this.next = view;
    // What has no size yet cannot be drawn into.
    if (!has || this.area.clientWidth === 0) return;
    if (this.chart) this.chart.draw(view);
    else void this.load();
  }

  /** The table costs as much as the chart: it is made while it is open. */
  private fill(): void {
    if (this.details.open) this.rows.body.replaceChildren(...this.cells().map((cells) => row(...cells)));
  }

  private async load(): Promise<void> {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      const { LaneChart: Chart } = await import("./lane-chart");
      this.chart = new Chart(this.area, (range) => this.tell(range));
      if (this.next) this.chart.draw(this.next);
    } catch (error) {
      this.shown.textContent = t.live.notLoaded(error instanceof Error ? error.message : t.live.noReason);
      this.details.open = true;
    } finally {
      this.isLoading = false;
    }
  }

  private tell({ from, to }: Range): void {
    // For tests: what is shown, as times of the server.
    Object.assign(this.area.dataset, { from: from.toFixed(0), to: to.toFixed(0) });
    if (this.next) this.shown.textContent = t.live.shown(this.next.axis(from), this.next.axis(to));
    if (this.wasZoomed === this.isZoomed) return;
    this.wasZoomed = this.isZoomed;
    // The chart tells this while it draws, and is not drawn anew in the middle of that.
    queueMicrotask(() => this.onZoom());
  }
}
