// The panel that tells all about one cell. It stays open while other cells are selected, and tells about those then.

import type { Line } from "../core/inspect";
import { t } from "../text";
import { element, fillList, onClick } from "./dom";
import { make } from "./make";

/** A prompt under a heading; or a note on one that is not there. */
export interface Prompt {
  term: string;
  text: string;
  isNote?: boolean;
}

/** What the panel shows. */
export interface Inspected {
  /** `B4`, and what it holds in a few words. */
  name: string;
  about: string;
  /** The formula behind it, its own or of the cell that fills it; nothing where none asks the model. */
  formula: string;
  /** What went wrong, in the server's words. */
  error: string;
  lines: readonly Line[];
  /** What the button says that asks again; nothing where no call is behind the cell. */
  again: string;
  /** The prompts of the cell's calls; the panel waits for them. */
  prompts: Promise<readonly Prompt[]> | undefined;
}

/** What the panel needs of the page. */
export interface InspectorHost {
  /** The selected cell. */
  inspect(): Inspected;
  /** Asks for it again. */
  again(): void;
  /** The panel takes room of the grid. */
  opened(): void;
  /** The keys go back to the grid. */
  closed(): void;
}

/** The panel. */
export class Inspector {
  private readonly panel = element("inspector", HTMLElement);
  private readonly title = element("inspector-title", HTMLSpanElement);
  private readonly about = element("inspector-about", HTMLParagraphElement);
  private readonly error = element("inspector-error", HTMLParagraphElement);
  private readonly list = element("inspector-list", HTMLDListElement);
  private readonly prompts = element("inspector-prompts", HTMLDivElement);
  private readonly again = element("inspector-again", HTMLButtonElement);
  private readonly button = element("inspect", HTMLButtonElement);
  /** What is shown: prompts of a cell that was left come too late. */
  private shown: Inspected | undefined;
  private said = "";

  constructor(private readonly host: InspectorHost) {
    onClick("inspect", () => (this.isOpen ? this.close() : this.open()));
    onClick("inspector-close", () => this.close());
    onClick("inspector-again", () => {
      // The button may go, and the keys with it.
      this.panel.focus();
      this.host.again();
    });
    this.panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    });
  }

  /** Whether it is there. */
  get isOpen(): boolean {
    return !this.panel.hidden;
  }

  /** Shows the selected cell, and takes the keys. */
  open(): void {
    this.panel.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    this.show();
    this.panel.focus();
    this.host.opened();
  }

  /** Another cell is selected, or the cell is worth something else. */
  show(): void {
    if (!this.isOpen) return;
    const shown = this.host.inspect();
    const before = this.shown;
    this.shown = shown;
    const said = JSON.stringify(shown);
    // While a column fills this is called many times a second, and what is written anew is read out anew.
    if (said !== this.said) {
      this.title.textContent = shown.name;
      this.about.textContent = shown.about;
      this.error.textContent = shown.error;
      fillList(this.list, shown.lines);
      if (shown.formula) this.list.prepend(make("dt", {}, t.inspect.formula), make("dd", {}, make("code", {}, shown.formula)));
      this.again.hidden = shown.again === "";
      this.again.textContent = shown.again;
      this.said = said;
    }
    // The same cell that fills keeps its prompt on the screen.
    if (before?.prompts === shown.prompts && before?.error === shown.error) return;
    this.prompts.replaceChildren();
    if (shown.prompts) this.tell({ term: t.inspect.prompt, text: "…" });
    void shown.prompts?.then((prompts) => {
      if (this.shown?.prompts !== shown.prompts) return;
      this.prompts.replaceChildren();
      for (const prompt of prompts) this.tell(prompt);
    });
  }

  private tell({ term, text, isNote = false }: Prompt): void {
    const head = make("h3", {}, term);
    // What is longer than its box is scrolled by keys.
    const body = isNote ? make("p", {}, text) : make("pre", { tabindex: "0" }, text);
    this.prompts.append(head);
    // Why there is none is told above, where it is why the cell has no answer.
    if (text !== this.shown?.error) this.prompts.append(body);
  }

  private close(): void {
    this.panel.hidden = true;
    this.shown = undefined;
    this.said = "";
    this.prompts.replaceChildren();
    this.button.setAttribute("aria-expanded", "false");
    this.host.closed();
  }
}
