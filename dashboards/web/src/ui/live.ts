// The live view: the queue, the steps, the memory and the tenants' shares as they are, and what another policy would have
// made of the last minutes. It draws what `core/live` knows, at most four times a second.

import { Activity } from "lucide";

import { batchRuns, batchWords } from "../core/live/batches";
import { LiveModel } from "../core/live/model";
import { title } from "../core/live/names";
import { plainName, policyFacts, policyName } from "../core/live/policy";
import { hitRate } from "../core/live/summary";
import type { Counts } from "../core/live/wire";
import { plainDecision } from "../core/live/words";
import { modelsOf } from "../core/models";
import { type Source, stream } from "../net/live";
import { count, percent, t } from "../text";
import type { AnsweringModel } from "./answering";
import { element, fillList } from "./dom";
import "./live.css";
import { Lanes } from "./live-lanes";
import { Queue } from "./live-queue";
import { Timeline } from "./live-steps";
import { KvMemory, Shares, curves, tiles } from "./live-memory";
import { WhatIfForm } from "./live-what-if";
import { empty, make, section } from "./make";

const DRAW_MS = 250;
/** The first frame tells what ran before; a server that has nothing to tell sends none for so long. */
const FIRST_MS = 1_000;

/** The view. */
export class LiveView {
  private readonly host = element("live", HTMLElement);
  private readonly model = new LiveModel();
  private readonly state = make("p", { class: "quiet", role: "status" });
  private readonly now = make("p", { id: "live-counts" });
  private readonly told = make("dl", { id: "live-told" });
  /** How it stands, in sentences. */
  private readonly summary = section(
    "live-now", t.live.nowTitle, this.now, this.told,
  );
  private readonly tiles = make("div", { class: "tiles" });
  private readonly facts = make("dl", {});
  private readonly curves = make("div", { class: "curves" });
  private readonly lanes = new Lanes();
  private readonly queue = new Queue();
  private readonly timeline = new Timeline();
  private readonly memory = new KvMemory();
  private readonly shares = new Shares();
  private readonly details = make("div", { class: "sections" });
  private readonly idle = empty(
    Activity, t.live.idle, t.live.idleHint, make("a", { href: "#sheet" }, t.live.toSheet),
  );
  private readonly which = make("select", { id: "live-model" });
  private readonly chooser = make("label", { class: "line" }, t.live.model, this.which);
  private readonly whatIf = new WhatIfForm(() => this.shown);
  /** The model that is looked at; the default one without. */
  private shown: string | undefined;
  private stop: (() => void) | undefined;
  private drawn = 0;
  private timer: number | undefined;
  /** Draws once more where no frame came after the greeting. */
  private greeting: number | undefined;
  private isGreeted = false;

  constructor(private readonly answering: AnsweringModel, private readonly source: Source = stream) {
    this.host.classList.add("live");
    this.which.addEventListener("change", () => this.look(this.which.value));
    this.details.append(this.lanes.host, this.timeline.host, this.queue.host, this.memory.host, this.shares.host, this.whatIf.host);
    this.summary.classList.add("now");
    this.details.hidden = this.idle.hidden = this.summary.hidden = true;
    this.host.replaceChildren(this.chooser, this.state, this.summary, this.tiles, this.idle, this.details, this.facts, this.curves);
  }

  /** Starts or stops. */
  show(on: boolean): void {
    this.stop?.();
    this.stop = undefined;
    clearTimeout(this.greeting);
    if (!on) return;
    this.choices();
    this.isGreeted = false;
    this.stop = this.source({
      hello: (hello) => {
        this.model.greet(hello);
        fillList(this.facts, policyFacts(hello, undefined));
        this.draw();
        clearTimeout(this.greeting);
        this.greeting = window.setTimeout(() => {
          this.isGreeted = true;
          this.draw();
        }, FIRST_MS);
      },
      frame: (frame) => {
        this.model.take(frame);
        this.draw();
      },
      counts: (counts) => this.fallBack(counts),
      state: (words, bad) => {
        this.state.textContent = words;
        this.state.className = bad ? "bad" : "quiet";
      },
    }, this.shown);
  }

  /** The models to look at; nothing to choose where there is one. */
  private choices(): void {
    const names = modelsOf(this.answering.models).map(({ id }) => id);
    if (this.shown !== undefined && !names.includes(this.shown)) this.shown = undefined;
    this.chooser.hidden = names.length < 2;
    this.which.replaceChildren(...names.map((name) => new Option(name, name)));
    this.which.value = this.shown ?? names[0] ?? "";
  }

  /** Looks at another model. */
  private look(name: string): void {
    this.shown = name;
    this.model.clear();
    this.whatIf.clear();
    this.show(true);
  }

  /** Draws now, or soon where it was drawn just before. */
  private draw(): void {
    if (this.timer !== undefined) return;
    const wait = Math.max(0, this.drawn + DRAW_MS - performance.now());
    this.timer = window.setTimeout(() => {
      this.timer = undefined;
      this.drawn = performance.now();
      this.drawAll();
    }, wait);
  }

  private drawAll(): void {
    const { model } = this;
    const { hello, snapshot } = model;
    const here = (snapshot?.relqueries.length ?? 0) + (snapshot?.others.relqueries ?? 0);
    this.tell(here);
    if (hello) fillList(this.facts, policyFacts(hello, snapshot));
    const isFleet = hello?.backend === "fleet";
    const isIdle = model.steps.length === 0 && model.bars().length === 0 && (snapshot?.others.relqueries ?? 0) === 0;
    // Before the first frame nobody knows whether something ran.
    const isKnown = snapshot !== undefined || this.isGreeted;
    this.idle.hidden = !isIdle || !isKnown;
    this.details.hidden = this.curves.hidden = this.summary.hidden = isIdle || !isKnown;
    this.tiles.hidden = true;
    this.lanes.draw(model);
    this.timeline.draw(model, isFleet);
    this.queue.draw(snapshot, hello, (id) => model.reasons(id));
    this.memory.draw(snapshot, isFleet);
    this.shares.draw(model, isFleet);
    curves(this.curves, model.points);
  }

  /** How it stands, and the last batch with its reason. */
  private tell(here: number): void {
    const { hello, snapshot, steps, points, lost } = this.model;
    const { rows_running = 0, rows_waiting = 0, prompt_tokens = 0, prefix_hit_tokens = 0 } = snapshot ?? {};
    this.now.textContent = here > 0 ? `${t.live.hereNow(here)}${t.live.runNow(rows_running, rows_waiting)}` : t.live.nothingNow;
    const [run] = batchRuns(steps, 1);
    const name = (id: string) => this.model.bars().filter((bar) => bar.id === id).map(title)[0];
    const recent = hitRate(points);
    const reused = recent ?? (prompt_tokens > 0 ? prefix_hit_tokens / prompt_tokens : undefined);
    fillList(this.told, [
      [t.live.lastBatch, hello?.backend === "fleet" ? t.live.stepsOfReplicas : run ? batchWords(run, name) : t.live.noBatch],
      [t.live.order, policyName(hello, snapshot)],
      ...(reused === undefined ? [] : [[t.live.reused, t.live.reusedOf(percent(reused, 1), recent !== undefined)] as [string, string]]),
      ...(lost > 0 ? [[t.live.stepsLost, count(lost)] as [string, string]] : []),
    ]);
  }

  /** What `GET /v1/scheduler` tells: counts, and no more. */
  private fallBack(counts: Counts): void {
    this.details.hidden = this.idle.hidden = this.summary.hidden = true;
    this.tiles.hidden = false;
    const hits = counts.prompt_tokens > 0 ? counts.prefix_hit_tokens / counts.prompt_tokens : 0;
    tiles(this.tiles, [
      [t.live.policy, plainName(counts.policy)],
      [t.live.relqueriesRunning, `${counts.relqueries.running}`],
      [t.live.relqueriesWaiting, `${counts.relqueries.waiting}`],
      [t.live.hits, percent(hits, 1)],
      [t.live.preemptions, `${counts.preemptions}`],
      [t.live.steps, count(counts.steps)],
    ]);
    const blocks = counts.kv_blocks;
    fillList(this.facts, [
      [t.live.blocks, t.live.blocksNow(blocks.used, blocks.cached, blocks.free, blocks.total)],
      [t.live.lastDecision, counts.last_decision ? plainDecision(counts.last_decision) : t.live.noDecision],
    ]);
  }
}
