// The run bar: how far the cells are, Stop, and asking again for what failed.

import { RunProgress } from "relserve-client/run-progress";

import type { Engine } from "../shared/engine";
import { at, onClick, write } from "./dom";
import { count, problemLine, runLine, tokensLine } from "./words";

/** Who hears the pane is told tenths: every cell would never stop talking. */
const STEPS = 10;

/** The run bar. */
export class RunBar {
  private readonly run = new RunProgress();
  private readonly bar = at("run-progress", HTMLProgressElement);
  private readonly line = at("run-line", HTMLParagraphElement);
  private readonly spoken = at("run-spoken", HTMLOutputElement);
  private readonly stop = at("stop", HTMLButtonElement);
  private readonly retry = at("retry", HTMLButtonElement);

  constructor(private readonly engine: Engine) {
    onClick("stop", () => engine.stop());
    onClick("retry", () => engine.retry());
  }

  /** Shows how the engine's calls stand. */
  show(): void {
    const { engine } = this;
    const view = this.run.update(engine.state);
    write(at("problem", HTMLParagraphElement), engine.problem ? problemLine(engine.problem) : "");
    if (engine.usage.asked > 0) write(at("run-tokens", HTMLParagraphElement), tokensLine(engine.tokens));
    if (view.kind === "idle") return this.offer();
    write(this.line, runLine(view));
    if (view.kind === "ended") {
      write(this.spoken, runLine(view));
      this.end();
      return;
    }
    const { kind, done, most } = view;
    this.bar.hidden = this.stop.hidden = false;
    this.retry.hidden = true;
    this.bar.max = most;
    this.bar.value = done;
    this.bar.classList.toggle("bad", kind === "reconnecting");
    const tenths = (100 / STEPS) * Math.floor((STEPS * done) / most);
    write(this.spoken, kind === "reconnecting" ? runLine(view) : `${tenths} % of ${count(most)} cells`);
  }

  private end(): void {
    // A button that goes takes the focus with it, and the keys would be nobody's.
    const hadFocus = document.activeElement === this.stop;
    this.bar.hidden = this.stop.hidden = true;
    this.offer();
    if (hadFocus) (this.retry.hidden ? this.line : this.retry).focus();
  }

  private offer(): void {
    const isOffered = this.engine.hasFailures;
    if (!isOffered && document.activeElement === this.retry) this.line.focus();
    this.retry.hidden = !isOffered;
  }
}
