// Charts drawn by Apache ECharts: the one file that knows it. It is loaded with the first chart, not with the page. Its
// tooltip is drawn on the canvas: markup with styles in it would not pass the page's content policy.

import { BarChart, LineChart, PieChart, ScatterChart } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { type EChartsType, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

import type { ChartData } from "../core/chart-data";
import type { ChartKind } from "../core/layout";

use([BarChart, LineChart, PieChart, ScatterChart, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

/** Told apart also without red and green (Okabe and Ito's colours). */
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#f0e442"];

/** A chart in its place. */
export class ChartView {
  private readonly chart: EChartsType;
  private readonly resizing: ResizeObserver;

  constructor(private readonly host: HTMLElement) {
    this.chart = init(host, undefined, { renderer: "canvas" });
    this.resizing = new ResizeObserver(() => this.chart.resize());
    this.resizing.observe(host);
  }

  /** Draws. */
  show(kind: ChartKind, data: ChartData): void {
    const ink = getComputedStyle(this.host).color;
    const text = { color: ink };
    this.chart.setOption({
      animation: false, color: COLOURS, textStyle: text,
      tooltip: { trigger: kind === "pie" || kind === "scatter" ? "item" : "axis", renderMode: "richText" },
      ...(data.series.length > 1 || kind === "pie" ? { legend: { top: 0, textStyle: text, type: "scroll" } } : {}),
      ...(kind === "pie" ? { series: [pie(data, ink)] } : axes(kind, data, ink)),
    }, { notMerge: true });
  }

  /** Takes it away. */
  close(): void {
    this.resizing.disconnect();
    this.chart.dispose();
  }
}

function pie({ labels, series: [first] }: ChartData, ink: string): Record<string, unknown> {
  return {
    type: "pie", radius: "62%", center: ["50%", "56%"], label: { color: ink },
    data: labels.map((name, i) => ({ name, value: first?.values[i] ?? 0 })),
  };
}

function axes(kind: ChartKind, { labels, series, axis }: ChartData, ink: string): Record<string, unknown> {
  const line = { axisLine: { lineStyle: { color: ink } }, axisLabel: { color: ink } };
  const isScatter = kind === "scatter" && labels.every((label) => label !== "" && Number.isFinite(Number(label)));
  const names = isScatter ? { type: "value", scale: true, ...line } : { type: "category", data: labels, ...line };
  const values = { type: "value", splitLine: { lineStyle: { opacity: 0.25 } }, ...line };
  const named = { name: axis, nameLocation: "middle", nameGap: 26, nameTextStyle: { color: ink } };
  const isBar = kind === "bar";
  return {
    grid: { left: 12, right: 16, top: series.length > 1 ? 34 : 12, bottom: isBar ? 12 : 30, containLabel: true },
    xAxis: isBar ? values : { ...names, ...named },
    yAxis: isBar ? { ...names, inverse: true } : values,
    series: series.map(({ name, values: numbers }) => ({
      name, type: kind === "column" || isBar ? "bar" : kind === "area" ? "line" : kind,
      ...(kind === "area" ? { areaStyle: { opacity: 0.25 } } : {}),
      ...(kind === "line" || kind === "area" ? { showSymbol: numbers.length < 60 } : {}),
      data: isScatter ? numbers.map((value, i) => [Number(labels[i]), value]) : numbers,
    })),
  };
}
