// The batch timeline: a column for each step, by kind, as high as it took long. Hovering or the arrow keys show a step in
// words; while one is chosen the timeline stands still.

import type { Step } from "../core/live/events";
import { batchRuns, batchWords } from "../core/live/batches";
import type { LiveModel } from "../core/live/model";
import { title } from "../core/live/names";
import { delta, describe, plainReason, since, span } from "../core/live/words";
import { t } from "../text";
import { legend, make, section } from "./make";

const STEPS_SHOWN = 120;
const RUNS_SHOWN = 6;
const KEYS: Record<string, (at: number, last: number) => number> = {
  ArrowLeft: (at) => at - 1,
  ArrowRight: (at) => at + 1,
  PageUp: (at) => at - 10,
  PageDown: (at) => at + 10,
  Home: () => 0,
  End: (_, last) => last,
};

/** The timeline. */
export class Timeline {
  private readonly list = make("div", {
    class: "steps", role: "listbox", tabindex: "0", id: "live-steps", "aria-describedby": "live-steps-help",
    "aria-labelledby": "live-timeline", "aria-orientation": "horizontal",
  });
  private readonly words = make("div", { class: "step", "aria-live": "polite" });
  private readonly state = make("p", { class: "quiet", id: "live-steps-help" });
  private readonly follow = make("button", { type: "button" }, t.live.follow);
  private readonly runs = make("ol", { class: "decisions", id: "batches", "aria-labelledby": "live-timeline", tabindex: "0" });
  readonly host = section(
    "live-timeline", t.live.batches, this.runs,
    legend((["prefill", "decode", "mixed", "failed"] as const).map((kind) => [kind, t.live.legend[kind]] as const)),
    this.list, make("div", { class: "line" }, this.follow, this.state), this.words,
  );
  private shown: readonly Step[] = [];
  private chosen: number | undefined;

  constructor() {
    this.follow.addEventListener("click", () => this.choose(undefined));
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("mouseover", (event) => this.point(event, false));
    this.list.addEventListener("click", (event) => this.point(event, true));
    this.list.addEventListener("mouseleave", () => this.say(this.step(this.chosen)));
    this.choose(undefined);
  }

  /** Shows the last steps, unless one is being looked at. */
  draw(model: LiveModel, isFleet: boolean): void {
    this.runs.hidden = isFleet;
    this.tell(model);
    if (this.chosen !== undefined) return;
    if (isFleet) {
      this.state.textContent = t.live.stepsOfReplicas;
      return;
    }
    // While the mouse is over it, it must not run away either.
    if (this.list.matches(":hover")) return;
    this.shown = model.steps.slice(-STEPS_SHOWN);
    const most = Math.max(1, ...this.shown.map((step) => step.took_us));
    this.list.replaceChildren(...this.shown.map((step) => column(step, most)));
    this.state.textContent = this.shown.length > 0
      ? t.live.lastSteps(this.shown.length, span(most))
      : t.live.noSteps;
  }

  /** The last batches in sentences. */
  private tell(model: LiveModel): void {
    const names = new Map(model.bars().map((bar) => [bar.id, title(bar)]));
    const items = batchRuns(model.steps, RUNS_SHOWN).map((run) =>
      make("li", {}, make("span", { class: "quiet" }, `${since(run.end_us, model.now)}: `), batchWords(run, (id) => names.get(id))));
    this.runs.replaceChildren(...(items.length > 0 ? items : [make("li", { class: "quiet" }, t.live.noBatch)]));
  }

  private step(number: number | undefined): Step | undefined {
    return this.shown.find((step) => step.step === number);
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") this.choose(undefined);
    const move = KEYS[event.key];
    const last = this.shown.length - 1;
    if (!move || last < 0) return;
    event.preventDefault();
    const at = this.shown.findIndex((step) => step.step === this.chosen);
    const to = at < 0 ? last : Math.min(Math.max(move(at, last), 0), last);
    this.choose(this.shown[to]?.step);
  }

  private point(event: Event, chooses: boolean): void {
    const number = event.target instanceof HTMLElement ? Number(event.target.closest("[data-step]")?.getAttribute("data-step")) : 0;
    if (!number) return;
    if (chooses) this.choose(number);
    else this.say(this.step(number));
  }

  private choose(number: number | undefined): void {
    this.chosen = number;
    this.follow.disabled = number === undefined;
    for (const one of this.list.children) {
      one.setAttribute("aria-selected", String(one.getAttribute("data-step") === String(number)));
    }
    if (number === undefined) this.list.removeAttribute("aria-activedescendant");
    else this.list.setAttribute("aria-activedescendant", `live-step-${number}`);
    this.say(this.step(number));
  }

  private say(step: Step | undefined): void {
    if (!step) return this.words.replaceChildren(make("span", { class: "quiet" }, t.live.chooseStep));
    this.words.replaceChildren(...describe(step).map((line, place) => make(place === 0 ? "b" : "p", {}, line)));
  }
}

function column(step: Step, most: number): HTMLElement {
  const traded = delta(step);
  const words = `${step.step}, ${t.live.kinds[step.kind]}, ${span(step.took_us)}, ${plainReason(step.reason, step.kind)}${traded ? `, ${traded}` : ""}`;
  const one = make("div", {
    id: `live-step-${step.step}`, "data-step": String(step.step), role: "option", "aria-selected": "false", "aria-label": words,
  });
  const bar = make("i", { class: `${step.kind}${step.failed ? " failed" : ""}` });
  bar.style.height = `${Math.max(4, (100 * step.took_us) / most).toFixed(1)}%`;
  one.append(bar);
  return one;
}
