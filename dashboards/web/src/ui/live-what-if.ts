// The what-if: the last minutes under another policy beside the present one, as numbers and as both timelines, and how far
// the simulator is off.

import { fullName, plainName, POLICIES } from "../core/live/policy";
import { span } from "../core/live/words";
import { type Latency, type WhatIf, check, drawn, milliseconds, verdict } from "../core/what-if";
import { trace, whatIf } from "../net/live";
import { t } from "../text";
import { download } from "./dom";
import { LaneBox } from "./lane-box";
import { make, row, section, table } from "./make";

/** The form and its answer. */
export class WhatIfForm {
  private readonly policy = make(
    "select", { id: "what-if-policy" },
    ...POLICIES.map((name) => make("option", { value: name, title: name }, plainName(name))), make("option", { value: "all" }, t.whatIf.each),
  );
  private readonly ask = make("button", { type: "submit", class: "main", id: "what-if" }, t.whatIf.ask);
  private readonly save = make("button", { type: "button", id: "save-trace" }, t.whatIf.save);
  private readonly answer = make("p", { role: "status", id: "what-if-answer" });
  private readonly checked = make("p", { id: "what-if-check" });
  private readonly table = table(t.whatIf.table, t.whatIf.heads);
  private readonly box = new LaneBox("what-if-lanes", t.whatIf.lanes, t.whatIf.lanesHeads);
  private readonly drawn = make("p", { class: "quiet" });
  readonly host: HTMLElement;

  /** `model`: whose last minutes. */
  constructor(private readonly model: () => string | undefined) {
    const form = make("form", { class: "line" }, make("label", { for: "what-if-policy" }, t.whatIf.under), this.policy, this.ask, this.save);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.run();
    });
    this.save.addEventListener("click", () => void this.saveTrace());
    this.table.host.hidden = true;
    this.box.host.hidden = true;
    this.host = section("live-what-if", t.whatIf.title, form, this.answer, this.checked, this.table.host, this.box.host, this.drawn);
  }

  /** Forgets the answer: another model's minutes are shown. */
  clear(): void {
    for (const words of [this.answer, this.checked, this.drawn]) words.textContent = "";
    this.table.host.hidden = this.box.host.hidden = true;
  }

  private async run(): Promise<void> {
    this.ask.disabled = true;
    this.answer.className = "";
    this.answer.textContent = t.whatIf.running;
    try {
      this.show(await whatIf(this.policy.value, this.model()));
    } catch (error) {
      this.fail(error);
    } finally {
      this.ask.disabled = false;
    }
  }

  private show(answer: WhatIf): void {
    this.answer.textContent = verdict(answer);
    this.checked.textContent = check(answer);
    this.table.host.hidden = answer.replays.length === 0;
    this.box.host.hidden = answer.replays.length === 0;
    const cells = (one: Latency) => [one.mean_ms, one.waiting_ms, one.core_ms, one.tail_ms, one.p95_ms].map(milliseconds);
    const rows = answer.replays.map((replay) => {
      const name = replay.is_present ? make("b", {}, t.whatIf.asNow(fullName(replay.policy))) : fullName(replay.policy);
      return row(name, ...cells(replay.latency));
    });
    if (answer.measured) rows.push(row(t.whatIf.measured(answer.measured.relqueries), ...cells(answer.measured)));
    this.table.body.replaceChildren(...rows);
    this.showLanes(answer);
  }

  /** Both timelines: of the policies that were asked for the best. */
  private showLanes(answer: WhatIf): void {
    const others = answer.replays.map((replay, at) => ({ at, mean: replay.latency.mean_ms })).slice(1);
    const best = others.sort((a, b) => a.mean - b.mean)[0];
    const lanes = drawn(answer, best?.at ?? 0);
    const view = {
      ...lanes, unit: t.whatIf.unit, axis: (us: number) => span(Math.max(0, us)), origin: 0,
      words: (lane: number) => [lanes.of[lane] ?? "", lanes.names[lane] ?? ""],
    };
    const length = (lane: number, kind: string) => {
      const found = lanes.pieces.find((piece) => piece.lane === lane && piece.kind === kind);
      return span(found ? found.to - found.from : 0);
    };
    const timed = lanes.names.flatMap((name, lane) => (lanes.heads.has(lane) ? [] : [{ name, lane }]));
    const rows = () => timed.map(({ name, lane }) => [`${lanes.of[lane]}: ${name}`, ...["waiting", "core", "tail"].map((kind) => length(lane, kind))]);
    this.box.draw(view, rows, t.whatIf.nothingDrawn);
    const more = answer.relqueries - lanes.relqueries;
    this.drawn.textContent = more > 0 ? t.whatIf.notDrawn(lanes.relqueries, more) : "";
  }

  private async saveTrace(): Promise<void> {
    try {
      download("relserve-trace.json", "application/json", await trace(this.model()));
    } catch (error) {
      this.fail(error);
    }
  }

  private fail(error: unknown): void {
    this.answer.className = "bad";
    this.answer.textContent = error instanceof Error ? error.message : t.unreachable;
    this.checked.textContent = "";
  }
}
