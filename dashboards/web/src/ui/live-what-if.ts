// The what-if button: the last minutes under another policy, beside the present one.

import { type Latency, POLICIES, type WhatIf, milliseconds, verdict } from "../core/what-if";
import { trace, whatIf } from "../net/live";
import { download } from "./dom";
import { make, row, section, table } from "./make";

/** The form and its answer. */
export class WhatIfForm {
  private readonly policy = make("select", { id: "what-if-policy" }, ...POLICIES.map((name) => make("option", { value: name }, name)));
  private readonly ask = make("button", { type: "submit", class: "main", id: "what-if" }, "What if?");
  private readonly save = make("button", { type: "button", id: "save-trace" }, "Save the trace");
  private readonly answer = make("p", { role: "status", id: "what-if-answer" });
  private readonly table = table("Latencies by policy", ["Policy", "Average latency", "Waiting", "Core", "Tail", "95th percentile"]);
  readonly host: HTMLElement;

  constructor() {
    const form = make("form", { class: "line" }, make("label", { for: "what-if-policy" }, "The last minutes under"), this.policy, this.ask, this.save);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.run();
    });
    this.save.addEventListener("click", () => void this.saveTrace());
    this.table.host.hidden = true;
    this.host = section("live-what-if", "What if", form, this.answer, this.table.host);
  }

  private async run(): Promise<void> {
    this.ask.disabled = true;
    this.answer.className = "";
    this.answer.textContent = "The simulator replays the last minutes…";
    try {
      this.show(await whatIf(this.policy.value));
    } catch (error) {
      this.fail(error);
    } finally {
      this.ask.disabled = false;
    }
  }

  private show(answer: WhatIf): void {
    this.answer.textContent = verdict(answer);
    this.table.host.hidden = answer.replays.length === 0;
    const cells = (one: Latency) => [one.mean_ms, one.waiting_ms, one.core_ms, one.tail_ms, one.p95_ms].map(milliseconds);
    const rows = answer.replays.map((replay) => {
      const name = replay.is_present ? make("b", {}, `${replay.policy} (present)`) : replay.policy;
      return row(name, ...cells(replay.latency));
    });
    if (answer.measured) rows.push(row(`as it was, ${answer.measured.relqueries} measured`, ...cells(answer.measured)));
    this.table.body.replaceChildren(...rows);
  }

  private async saveTrace(): Promise<void> {
    try {
      download("relserve-trace.json", "application/json", await trace());
    } catch (error) {
      this.fail(error);
    }
  }

  private fail(error: unknown): void {
    this.answer.className = "bad";
    this.answer.textContent = error instanceof Error ? error.message : "the server cannot be reached";
  }
}
