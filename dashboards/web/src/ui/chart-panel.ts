// The charts of a sheet, beside the grid (below it on a narrow page): each with its kind, its name and what it is of.

import { ChartColumn } from "lucide";

import { cellName } from "../core/address";
import { type ChartData, chartData } from "../core/chart-data";
import { CHART_KINDS, type ChartKind, type ChartOptions } from "../core/layout";
import type { Sheet } from "../core/sheet";
import { t } from "../text";
import type { ChartView } from "./chart-view";
import { element } from "./dom";
import type { Grid } from "./grid";
import { empty, make } from "./make";

/** Charts are drawn again this long after cells have changed. */
const REDRAW_MS = 250;

/** What people call the kinds. */
const NAMES: Record<ChartKind, string> = t.chart.kinds;

interface Card {
  chart: ChartOptions;
  place: HTMLElement;
  whole: HTMLElement;
  view: ChartView | undefined;
  drawn: string;
}

/** The panel. */
export class ChartPanel {
  private readonly host = element("charts", HTMLElement);
  private cards: Card[] = [];
  private timer: number | undefined;

  constructor(private readonly grid: Grid, private readonly sheet: () => Sheet | undefined) {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const card of this.cards) card.drawn = "";
      this.redraw();
    });
  }

  /** Shows the charts of the grid's layout. */
  show(): void {
    const { charts } = this.grid.layout;
    const isSame = charts.length === this.cards.length && charts.every((chart, i) => chart === this.cards[i]?.chart);
    if (!isSame) {
      for (const { view } of this.cards) view?.close();
      this.cards = charts.map((chart, index) => this.card(chart, index));
      this.host.replaceChildren(...this.cards.map(({ whole }) => whole));
      this.host.hidden = charts.length === 0;
    }
    this.redraw();
  }

  /** Draws again soon, since cells may have changed. */
  soon(): void {
    if (this.cards.length > 0) this.timer ??= window.setTimeout(() => this.redraw(), REDRAW_MS);
  }

  private redraw(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    for (const card of this.cards) void this.draw(card);
  }

  private async draw(card: Card): Promise<void> {
    const sheet = this.sheet();
    if (!sheet) return;
    const { kind, title, area } = card.chart;
    const data = chartData(sheet, this.grid.layout, area, (row) => this.grid.isHidden(row), kind === "scatter");
    const drawn = JSON.stringify([kind, data]);
    if (drawn === card.drawn) return;
    card.drawn = drawn;
    card.place.setAttribute("aria-label", `${title}: ${NAMES[kind]}. ${spoken(data)}`);
    card.place.dataset["drawn"] = "no";
    if (data.series.length === 0) {
      card.view?.close();
      card.view = undefined;
      card.place.replaceChildren(empty(ChartColumn, t.chart.empty, t.chart.emptyHint));
      card.place.dataset["drawn"] = "yes";
      return;
    }
    const { ChartView: View } = await import("./chart-view");
    if (!card.place.isConnected) return;
    if (!card.view) card.place.replaceChildren();
    card.view ??= new View(card.place);
    card.view.show(kind, data);
    card.place.dataset["drawn"] = "yes";
  }

  private card(chart: ChartOptions, index: number): Card {
    const place = make("div", { class: "chart", role: "img" });
    const name = `${chart.title}, ${cellName(chart.area.row, chart.area.column)}:${cellName(chart.area.rowEnd, chart.area.columnEnd)}`;
    const kind = make("select", { "aria-label": t.chart.kindOf(name) }, ...CHART_KINDS.map((one) => new Option(NAMES[one], one, false, one === chart.kind)));
    kind.addEventListener("change", () => this.change(index, { ...chart, kind: kind.value as ChartKind }));
    const remove = make("button", { type: "button", "aria-label": t.chart.removeNamed(name) }, t.remove);
    remove.addEventListener("click", () => this.change(index, undefined));
    const head = make("div", { class: "bar" }, make("h2", {}, chart.title), make("span", { class: "grow" }), kind, remove);
    return { chart, place, whole: make("section", { "aria-label": name }, head, place), view: undefined, drawn: "" };
  }

  private change(index: number, chart: ChartOptions | undefined): void {
    const { layout } = this.grid;
    this.grid.stepLayout({ ...layout, charts: layout.charts.flatMap((one, i) => (i !== index ? [one] : chart ? [chart] : [])) });
  }
}

/** What a chart shows, for those who do not see it. */
function spoken({ labels, series }: ChartData): string {
  if (series.length === 0) return t.chart.nothing;
  const first = series[0]?.values ?? [];
  const some = labels.slice(0, 10).map((label, i) => `${label} ${first[i] ?? t.chart.none}`).join(", ");
  const more = labels.length > 10 ? t.chart.more(labels.length - 10) : "";
  return `${series.map(({ name }) => name).join(", ")}. ${some}${more}.`;
}
