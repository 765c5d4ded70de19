// RelQueries over time: a lane for each with waiting, core and tail, as they are or as they were in the last minutes; and the
// decisions of those minutes, each in a sentence.

import { firstArrival, firstWindow, hasTenants, laneWords, lanesAt, within } from "../core/live/lanes";
import type { LiveModel } from "../core/live/model";
import { detail, title } from "../core/live/names";
import { Replay, SPEEDS } from "../core/live/replay";
import { sentence } from "../core/live/sentences";
import { ago, periods, since, span } from "../core/live/words";
import { t } from "../text";
import { LaneBox } from "./lane-box";
import { make, section } from "./make";

/** Between two drawings of a replay. */
const PLAY_MS = 100;
const DECISIONS_SHOWN = 12;

/** The lanes. */
export class Lanes {
  private readonly play = make("button", { type: "button", id: "replay-play" }, t.live.replay);
  private readonly live = make("button", { type: "button", id: "replay-live" }, t.live.present);
  private readonly place = make("input", { type: "range", id: "replay-at", min: "0", max: "1000", value: "1000" });
  private readonly speed = make("select", { id: "replay-speed" }, ...SPEEDS.map((speed) => make("option", { value: String(speed) }, t.live.speed(speed))));
  private readonly said = make("output", { class: "quiet", id: "replay-said", "aria-live": "off" });
  private readonly decisions = make("ol", { class: "decisions", id: "decisions" });
  private readonly box = new LaneBox(
    "lanes", t.live.lanes, t.live.lanesHeads,
    make("div", { class: "line", role: "group", "aria-label": t.live.replayOf },
      this.play, make("label", { for: "replay-at" }, t.live.replayTime), this.place, make("label", { for: "replay-speed" }, t.live.replaySpeed), this.speed, this.live, this.said),
  );
  private readonly showAll = make("button", { type: "button", id: "lanes-show-all" }, t.live.showAll);
  private readonly left = make("span", { class: "quiet" });
  /** What is left out at first. */
  private readonly leftOut = make("p", { class: "line" }, this.left, this.showAll);
  readonly host = section(
    "live-bars", t.live.lanes, make("p", { class: "quiet" }, t.live.what), this.box.host, this.leftOut,
    make("h3", { id: "decisions-title" }, t.live.decisions), this.decisions,
  );
  private readonly replay = new Replay();
  private model: LiveModel | undefined;
  private timer: number | undefined;

  constructor() {
    this.speed.value = String(this.replay.speed);
    this.decisions.setAttribute("aria-labelledby", "decisions-title");
    this.decisions.tabIndex = 0;
    this.box.onZoom = () => this.act(() => undefined);
    this.showAll.addEventListener("click", () => this.box.showAll());
    this.play.addEventListener("click", () => this.toggle());
    this.live.addEventListener("click", () => this.act(() => this.replay.follow()));
    this.place.addEventListener("input", () => this.act(() => this.seek()));
    this.speed.addEventListener("change", () => this.act(() => {
      this.replay.speed = Number(this.speed.value);
    }));
  }

  /** Shows what is known. */
  draw(model: LiveModel): void {
    this.model = model;
    const { now } = model;
    const time = this.replay.time(now);
    const bars = model.bars();
    const first = firstArrival(bars, now);
    const ofAll = hasTenants(bars, model.hello?.visible_to === "all");
    const isWhole = !this.replay.isLive || this.box.isZoomed;
    const window = isWhole ? { from: first, to: Math.max(now, first + 1) } : firstWindow(bars, now);
    // Lanes of earlier work would be empty in what is shown at first, and take the others' room.
    const shown = isWhole ? bars : within(bars, window, now);
    const lanes = lanesAt(shown, time, ofAll);
    this.leftOut.hidden = shown.length === bars.length;
    this.left.textContent = t.live.earlierLanes(bars.length - shown.length);
    const view = {
      ...lanes, from: first, to: Math.max(now, first + 1), unit: t.live.beforePresent, axis: (us: number) => ago(us, now), origin: now,
      words: (lane: number) => { const bar = lanes.bars[lane]; return bar ? laneWords(bar) : []; },
      ...(this.replay.isLive ? {} : { at: time }),
      window,
    };
    const rows = () => lanesAt(bars, time, ofAll).bars.map((bar) => [
      ofAll ? `${bar.tenant}: ${title(bar)}` : title(bar), detail(bar),
      bar.failed > 0 ? t.live.rowsFailed(bar.rows, bar.failed) : bar.rows, periods(bar, time), t.live.periods[bar.period],
    ]);
    this.box.draw(view, rows, t.live.noLanes);
    this.tell(time, now, first);
    this.decide(model, time, now, ofAll);
  }

  private tell(time: number, now: number, first: number): void {
    this.play.textContent = this.replay.isPlaying ? t.live.pause : t.live.replay;
    this.live.disabled = this.replay.isLive;
    const part = now > first ? (1_000 * (time - first)) / (now - first) : 1_000;
    if (document.activeElement !== this.place || !this.replay.isLive) this.place.value = String(Math.round(part));
    const words = time >= now ? t.live.thePresent : t.live.ago(span(now - time));
    this.place.setAttribute("aria-valuetext", words);
    this.said.textContent = t.live.shows(words);
  }

  private decide(model: LiveModel, time: number, now: number, ofAll: boolean): void {
    const shown = model.decisions.filter((one) => one.at_us <= time).slice(-DECISIONS_SHOWN).reverse();
    // Of one's own relQueries alone nothing of another's is told but that it is another's.
    const isNamed = ofAll || model.hello?.visible_to !== "all";
    const none = make("li", { class: "quiet" }, t.live.noDecisions);
    const items = shown.map((one) => make("li", {}, make("span", { class: "quiet" }, `${since(one.at_us, now)}: `), sentence(one, isNamed)));
    this.decisions.replaceChildren(...(items.length > 0 ? items : [none]));
  }

  private toggle(): void {
    this.act((model) => {
      if (this.replay.isPlaying) return this.replay.pause();
      const first = firstArrival(model.bars(), model.now);
      // At its end it begins again.
      const from = this.replay.isLive || this.replay.time(model.now) >= model.now ? first : this.replay.time(model.now);
      this.replay.play(from, performance.now());
    });
  }

  private seek(): void {
    if (!this.model) return;
    const first = firstArrival(this.model.bars(), this.model.now);
    this.replay.seek(first + ((this.model.now - first) * Number(this.place.value)) / 1_000);
  }

  /** Does something and draws; goes on drawing while a replay plays. */
  private act(then: (model: LiveModel) => void): void {
    const { model } = this;
    if (!model) return;
    then(model);
    this.draw(model);
    clearTimeout(this.timer);
    if (!this.replay.isPlaying) return;
    this.timer = window.setTimeout(() => this.act(() => this.replay.tick(performance.now(), model.now)), PLAY_MS);
  }
}
