// Lanes over time, drawn by Apache ECharts: the one file that knows it. It is loaded with the first chart, not with the page.
// Its tooltip is drawn on the canvas: markup with styles in it would not pass the page's content policy.

import { CustomChart, type CustomSeriesOption } from "echarts/charts";
import { DataZoomComponent, type DataZoomComponentOption, GridComponent, TooltipComponent } from "echarts/components";
import { type EChartsType, graphic, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

import { type LaneData, type Piece, laneHeight } from "../core/live/lanes";
import { span } from "../core/live/words";
import { t } from "../text";

use([CustomChart, DataZoomComponent, GridComponent, TooltipComponent, CanvasRenderer]);

/** Lanes that are seen at once; further ones are scrolled to. */
const LANES_SEEN = 24;
/** Of the window's height, what the lanes take where they are few. */
const ROOM_PART = 0.42;
/** From this height of a lane on there is room for a second line below its name, and for words in its stretches. */
const WORDS_PX = 34;
/** Up to this width names stand above their lanes, not beside them, and take so much of each. */
const NARROW_PX = 560;
const NAME_PX = 18;
/** A letter of the words in a stretch, and what is around them. */
const LETTER_PX = 6.4;
const WORDS_AROUND_PX = 10;
/** Above and below the lanes: the zoom bar and the axis. */
const AROUND_PX = 92;
/** The lanes' names: so wide, and no more than this part of the whole. */
const NAMES_PX = 220;
const NAMES_PART = 0.34;
/** Who looks at a stretch whose end is within this part of the present goes along with it. */
const PRESENT_PART = 0.02;

/** Colours by what they are for, as the page's style has them. */
const COLOURS = { waiting: "--quiet", core: "--accent", tail: "--third", cancelled: "--bad", text: "--ink", line: "--line", back: "--paper" } as const;
type Colours = Record<keyof typeof COLOURS, string>;

/** Kinds differ in height too, not in colour alone. */
const HEIGHTS: Record<Piece["kind"], number> = { waiting: 0.18, core: 0.8, tail: 0.5, cancelled: 0.3 };

/** What the style says a colour is, light or dark. */
function colours(host: HTMLElement): Colours {
  const probe = document.createElement("span");
  host.append(probe);
  const read = (name: string) => {
    probe.style.color = `var(${name}, currentColor)`;
    return getComputedStyle(probe).color;
  };
  const found = Object.fromEntries(Object.entries(COLOURS).map(([key, name]) => [key, read(name)])) as Colours;
  probe.remove();
  return found;
}

/** A stretch of time that is shown, in the data's microseconds. */
export interface Range {
  from: number;
  to: number;
}

/** What the chart is told to show. */
export interface LaneView extends LaneData {
  /** A time on the axis in words. */
  axis: (us: number) => string;
  /** The time that the axis counts from, so that its marks stand at round numbers. */
  origin: number;
  /** A time that is marked. */
  at?: number;
  /** What stands beside the axis. */
  unit: string;
  /** A lane in lines, for who points at it. */
  words: (lane: number) => string[];
  /** What is shown where nobody has zoomed. Without it all is shown, and each drawing is a new picture with a zoom of its own. */
  window?: Range;
}

/** The chart. */
export class LaneChart {
  private readonly chart: EChartsType;
  private colours: Colours;
  private view: LaneView | undefined;
  /** What was zoomed to. */
  private zoomed: Range | "all" | undefined;
  /** Whether the zoom ends with the present and goes along with it. */
  private isFollowing = false;
  /** The zoom as it was drawn last. */
  private before: DataZoomComponentOption = {};
  /** Held by a finger or the mouse: what is under them must not be made anew. */
  private isHeld = false;
  private next: LaneView | undefined;
  /** How high a lane is. */
  private lane = 0;

  /** `onZoom` is told what is shown, after each drawing and each zoom. */
  constructor(private readonly host: HTMLElement, private readonly onZoom: (range: Range) => void) {
    this.colours = colours(host);
    // The wheel alone scrolls the page, as it does beside the chart: with Ctrl, which pads send for two fingers, it zooms.
    const apart = (event: Event) => {
      if (event instanceof WheelEvent && !event.ctrlKey) event.stopPropagation();
    };
    for (const name of ["wheel", "mousewheel"]) host.addEventListener(name, apart, { capture: true, passive: true });
    this.chart = init(host, null, { renderer: "canvas" });
    this.chart.on("datazoom", () => this.note());
    new ResizeObserver(() => this.again(() => this.chart.resize())).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.again(() => {
      this.colours = colours(host);
    }));
    host.addEventListener("pointerdown", () => {
      this.isHeld = true;
    });
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => this.letGo());
  }

  /** Whether somebody has chosen what is shown. */
  get isZoomed(): boolean {
    return this.zoomed !== undefined;
  }

  private get isNarrow(): boolean {
    return this.host.clientWidth < NARROW_PX;
  }

  private again(change: () => void): void {
    change();
    if (this.view) this.draw(this.view);
  }

  private letGo(): void {
    this.isHeld = false;
    if (this.next) this.draw(this.next);
  }

  /** Notes what somebody has zoomed to; the bar of the lanes moves no time. */
  private note(): void {
    const { start, end } = this.zoomOf(0);
    if (start === this.before.start && end === this.before.end) return;
    this.before = this.zoomOf(0);
    const range = this.range();
    this.zoomed = (start ?? 0) <= 0 && (end ?? 100) >= 100 ? "all" : range;
    this.isFollowing = range.to >= (this.view?.to ?? range.to) - PRESENT_PART * (range.to - range.from);
    this.onZoom(range);
  }

  /** What to show of a view. */
  private wanted(view: LaneView): Range {
    if (!view.window) this.zoomed = undefined;
    if (this.zoomed === undefined) return view.window ?? view;
    if (this.zoomed === "all") return view;
    const by = this.isFollowing ? view.to - this.zoomed.to : 0;
    this.zoomed = { from: this.zoomed.from + by, to: this.zoomed.to + by };
    return { from: Math.max(this.zoomed.from, view.from), to: Math.min(this.zoomed.to, view.to) };
  }

  /** Shows lanes. */
  draw(view: LaneView): void {
    this.next = this.isHeld ? view : undefined;
    if (this.isHeld) return;
    this.view = view;
    const seen = Math.min(Math.max(view.names.length, 2), LANES_SEEN);
    const above = this.isNarrow ? NAME_PX : 0;
    this.lane = above + laneHeight(Math.min(view.names.length, LANES_SEEN), ROOM_PART * innerHeight - above * seen);
    const height = `${seen * this.lane + AROUND_PX}px`;
    if (this.host.style.height !== height) {
      this.host.style.height = height;
      this.chart.resize();
    }
    this.chart.setOption(this.option(view), { replaceMerge: ["series"] });
    this.before = this.zoomOf(0);
    this.onZoom(this.range());
  }

  /** Shows this part of what is shown now, around its middle; above 1 shows more. */
  zoom(factor: number): void {
    const { from, to } = this.range();
    const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
    this.show({ from: middle - half, to: middle + half });
  }

  /** Moves by parts of what is shown. */
  pan(part: number): void {
    const { from, to } = this.range();
    const by = (to - from) * part;
    this.show({ from: from + by, to: to + by });
  }

  /** Shows all. */
  all(): void {
    this.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start: 0, end: 100 });
  }

  private show({ from, to }: Range): void {
    if (!this.view) return;
    const startValue = Math.max(from, this.view.from) - this.view.origin;
    const endValue = Math.min(to, this.view.to) - this.view.origin;
    this.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, startValue, endValue });
  }

  /** What the chart says of its zoom bars: 0 is that of time, 2 that of lanes. */
  private zoomOf(number: number): DataZoomComponentOption {
    // There is none before the first drawing, whatever its type says.
    const option = this.chart.getOption() as { dataZoom?: DataZoomComponentOption[] } | undefined;
    return option?.dataZoom?.[number] ?? {};
  }

  /** What is shown. */
  private range(): Range {
    const { startValue, endValue } = this.zoomOf(0);
    const { from, to, origin } = this.view ?? { from: 0, to: 1, origin: 0 };
    return {
      from: typeof startValue === "number" ? startValue + origin : from, to: typeof endValue === "number" ? endValue + origin : to,
    };
  }

  private option(view: LaneView) {
    const { text, line, back } = this.colours;
    const { origin } = view;
    const { from, to } = this.wanted(view);
    const axis = (us: number) => view.axis(us + origin);
    const zoom = { xAxisIndex: 0, filterMode: "none" as const, startValue: from - origin, endValue: to - origin };
    const isLong = view.names.length > LANES_SEEN;
    const isScrolled = isLong && (this.zoomOf(2).startValue ?? 0) !== 0;
    const lanes = { yAxisIndex: 0, filterMode: "none" as const, ...(isScrolled ? {} : { startValue: 0, endValue: LANES_SEEN - 1 }) };
    return {
      animation: false,
      grid: { left: 8, right: isLong ? 40 : 24, top: 8, bottom: 48, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      xAxis: {
        type: "value", min: view.from - origin, max: view.to - origin, name: view.unit, nameLocation: "middle", nameGap: 24,
        nameTextStyle: { color: text }, axisLabel: { color: text, hideOverlap: true, showMinLabel: false, formatter: axis },
        axisLine: { show: true, lineStyle: { color: line } }, axisTick: { show: true }, splitLine: { lineStyle: { color: line } },
      },
      yAxis: {
        type: "category", inverse: true, data: view.names, axisLabel: this.names(view),
        axisLine: { lineStyle: { color: line } }, axisTick: { show: false },
      },
      tooltip: {
        renderMode: "richText", confine: true, backgroundColor: back, borderColor: line, textStyle: { color: text },
        formatter: ({ dataIndex }: { dataIndex: number }) => this.tip(dataIndex),
      },
      dataZoom: [
        // A finger that moves up and down scrolls the page.
        { type: "inside", ...zoom, preventDefaultMouseMove: false },
        {
          type: "slider", ...zoom, height: 22, bottom: 8, showDataShadow: false, brushSelect: false, textStyle: { color: text },
          borderColor: line, handleStyle: { borderColor: line }, labelFormatter: axis,
        },
        { type: "slider", show: isLong, width: 14, right: 4, brushSelect: false, showDetail: false, showDataShadow: false, ...lanes },
      ],
      series: [
        this.series(view), ...(this.isNarrow ? [this.above(view, from - origin)] : []), ...(view.at === undefined ? [] : [this.cursor(view.at - origin)]),
      ],
    };
  }

  /** The lanes' names; those of groups stand out. A second line says how much it is, where there is room. */
  private names({ heads, notes }: LaneView) {
    if (this.isNarrow) return { show: false as boolean };
    const isHigh = this.lane >= WORDS_PX;
    const plain = (text: string) => text.replace(/[{}|]/g, " ");
    const width = Math.round(Math.min(NAMES_PX, NAMES_PART * this.host.clientWidth));
    const style = { width, overflow: "truncate" as const, color: this.colours.text };
    return {
      ...style, show: true, interval: 0, formatter: (name: string, lane: number) => {
        if (heads?.has(lane)) return `{head|${plain(name)}}`;
        const note = isHigh ? notes?.[lane] : undefined;
        return note === undefined ? name : `{head|${plain(name)}}\n{note|${plain(note)}}`;
      },
      rich: { head: { ...style, fontWeight: "bold" as const, align: "right" as const }, note: { ...style, color: this.colours.waiting, lineHeight: 18, align: "right" as const } },
    };
  }

  private series(view: LaneView): CustomSeriesOption {
    return {
      type: "custom",
      encode: { x: [1, 2], y: 0 },
      data: view.pieces.map(({ lane, from, to }) => [lane, from - view.origin, to - view.origin]),
      renderItem: (params, api) => {
        const piece = view.pieces[params.dataIndex];
        if (!piece) return null;
        const lane = api.value(0);
        const [start, end] = [api.coord([api.value(1), lane]), api.coord([api.value(2), lane])];
        const above = this.isNarrow ? NAME_PX : 0;
        const band = this.lane - above;
        const height = band * HEIGHTS[piece.kind];
        const x = start[0] ?? 0;
        const y = (start[1] ?? 0) + above / 2;
        const area = params.coordSys as unknown as { x: number; y: number; width: number; height: number };
        const wanted = { x, y: y - height / 2, width: Math.max((end[0] ?? 0) - x, 2), height };
        const shape = graphic.clipRectByRect(wanted, area);
        if (!shape) return null;
        const words = t.live.pieces[piece.kind](span(piece.to - piece.from));
        const fits = band >= WORDS_PX && shape.width >= words.length * LETTER_PX + WORDS_AROUND_PX;
        const isThick = HEIGHTS[piece.kind] >= 0.5;
        return {
          type: "rect", shape, style: { fill: this.colours[piece.kind] },
          ...(fits ? {
            textContent: { type: "text" as const, style: { text: words, fill: isThick ? this.colours.back : this.colours.text }, silent: true },
            textConfig: { position: isThick ? "inside" as const : "top" as const, distance: 2, local: true, inside: true },
          } : {}),
        };
      },
    };
  }

  /** The lanes' names above their lanes, at the left. */
  private above(view: LaneView, from: number): CustomSeriesOption {
    return {
      type: "custom", silent: true, encode: { y: 0 }, data: view.names.map((_, lane) => [lane]), tooltip: { show: false },
      renderItem: (params, api) => {
        const area = params.coordSys as unknown as { x: number; y: number; width: number; height: number };
        const lane = Number(api.value(0));
        const [, middle = 0] = api.coord([from, lane]);
        const top = middle - this.lane / 2;
        if (top < area.y - 1 || top + NAME_PX > area.y + area.height) return null;
        const note = this.lane - NAME_PX >= WORDS_PX ? view.notes?.[lane] : undefined;
        const text = [view.names[lane], note].filter((part) => part !== undefined).join(" · ");
        return {
          type: "text", style: {
            text, x: area.x + 2, y: top + 2, width: area.width - 4, overflow: "truncate", ellipsis: "…", fill: this.colours.text,
            fontWeight: view.heads?.has(lane) ? "bold" : "normal",
          },
        };
      },
    };
  }

  /** A line down through all lanes. */
  private cursor(at: number): CustomSeriesOption {
    return {
      type: "custom", silent: true, encode: { x: 0 }, data: [[at, 0]], tooltip: { show: false },
      renderItem: (params, api) => {
        const { x, y, width, height } = params.coordSys as unknown as { x: number; y: number; width: number; height: number };
        const [place = 0] = api.coord([api.value(0), 0]);
        if (place < x || place > x + width) return null;
        return { type: "line", shape: { x1: place, y1: y, x2: place, y2: y + height }, style: { stroke: this.colours.text, lineWidth: 1.5 } };
      },
    };
  }

  private tip(index: number): string {
    const piece = this.view?.pieces[index];
    if (!piece || !this.view) return "";
    const when = t.live.pieceFrom(t.live.periods[piece.kind], span(piece.to - piece.from), this.view.axis(piece.from));
    return [...this.view.words(piece.lane), when].join("\n");
  }
}
