// While a formula is typed, in a cell or in the bar: the functions that fit, to be chosen by arrows and Tab or Enter or by a
// press, and inside of a function's brackets what belongs there. The keys stay in the field, as ARIA's combobox has it.

import { type Call, type Completion, callAt, completed, completionAt } from "../core/completion";
import { t } from "../text";
import { helpOf } from "../text/functions";
import { element } from "./dom";
import { make } from "./make";

/** Space between the field and the panel, and around the window's edge, in pixels. */
const GAP_PX = 4;
/** The panel's height, where there is room for it, and the least of it that is worth being below the field. */
const HEIGHT_PX = 280;
const LEAST_PX = 150;

/** What it needs of the page. */
export interface CompletionHost {
  /** Where somebody types in a cell or in the bar. */
  field(): HTMLInputElement | undefined;
  /** Whether the model that answers refuses a function. */
  refuses(name: string): boolean;
}

/** The panel. */
export class CompletionPanel {
  private readonly panel = element("completion", HTMLDivElement);
  private readonly list = element("completion-list", HTMLDivElement);
  private readonly help = element("completion-help", HTMLParagraphElement);
  private field: HTMLInputElement | undefined;
  private completion: Completion | undefined;
  private at = 0;
  /** Whether an arrow key went through the list. */
  private isMoved = false;
  /** Where the name begins whose list was put away: more letters of it bring no list back. */
  private dismissed: number | undefined;

  constructor(private readonly host: CompletionHost) {
    document.addEventListener("input", (event) => {
      const field = host.field();
      // What an input method has half written is its own.
      if (field && event.target === field && !(event as InputEvent).isComposing) this.show(field);
    });
    document.addEventListener("focusin", () => {
      const field = host.field();
      if (field) this.name(field);
    });
    document.addEventListener("focusout", () => this.close());
    // The caret went elsewhere: what was open follows it.
    for (const moved of ["keyup", "mouseup"]) {
      document.addEventListener(moved, (event) => {
        if (!this.field || (event instanceof KeyboardEvent && !/^(Arrow(Left|Right)|Home|End)$/.test(event.key))) return;
        if (event.target === this.field) this.show(this.field);
      });
    }
    // Before the grid and the bar, which take these keys for the end of what is typed.
    addEventListener("keydown", (event) => {
      if (!this.key(event)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
    }, true);
    // A press must leave the focus in the field, and the grid takes one beside it for the end of what is typed.
    for (const press of ["mousedown", "touchstart"]) {
      this.panel.addEventListener(press, (event) => {
        event.stopPropagation();
        if (press === "mousedown") event.preventDefault();
      });
    }
    this.list.addEventListener("click", ({ target }) => {
      const index = Array.from(this.list.children).findIndex((option) => option.contains(target as Node));
      if (index >= 0) this.choose(index);
    });
    for (const moved of ["scroll", "resize"]) {
      addEventListener(moved, ({ target }) => target !== this.list && this.place(), true);
      visualViewport?.addEventListener(moved, () => this.place());
    }
  }

  /** Puts the panel away: nobody types any more. */
  close(): void {
    this.dismissed = undefined;
    this.hide();
  }

  private hide(): void {
    this.field?.setAttribute("aria-expanded", "false");
    for (const said of ["aria-activedescendant", "aria-describedby"]) this.field?.removeAttribute(said);
    this.field = this.completion = undefined;
    if (this.panel.matches(":popover-open")) this.panel.hidePopover();
  }

  /** Tells what listens that a field has a list; those of cells are made anew by the grid. */
  private name(field: HTMLInputElement): void {
    if (field.getAttribute("role") === "combobox") return;
    const said = {
      role: "combobox", "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-expanded": "false", "aria-controls": this.list.id,
      "aria-labelledby": "formula-label",
    };
    for (const [name, value] of Object.entries(said)) field.setAttribute(name, value);
  }

  private show(field: HTMLInputElement): void {
    const caret = field.selectionStart ?? field.value.length;
    const isPoint = caret === field.selectionEnd;
    const completion = isPoint ? completionAt(field.value, caret) : undefined;
    const call = isPoint ? callAt(field.value, caret) : undefined;
    if (completion?.from !== this.dismissed) this.dismissed = undefined;
    this.name(field);
    if (completion && this.dismissed === undefined) this.showList(field, completion);
    else if (call && helpOf(call.name).summary !== "") this.showCall(field, call);
    else this.hide();
  }

  private showList(field: HTMLInputElement, found: Completion): void {
    // What the model refuses is told, but nobody gets it by pressing Enter at once.
    const isRefused = (name: string) => this.host.refuses(name);
    const completion = { ...found, names: [...found.names.filter((name) => !isRefused(name)), ...found.names.filter(isRefused)] };
    const before = this.completion?.names[this.at];
    [this.field, this.completion] = [field, completion];
    this.list.replaceChildren(...completion.names.map((name, index) => this.option(name, index)));
    this.list.hidden = false;
    this.help.hidden = true;
    field.setAttribute("aria-expanded", "true");
    field.removeAttribute("aria-describedby");
    this.open();
    // What was gone to with the arrows stays while it fits; else the first is what is meant.
    const stays = this.isMoved && before !== undefined ? completion.names.indexOf(before) : -1;
    this.isMoved &&= stays >= 0;
    this.mark(Math.max(0, stays));
  }

  private showCall(field: HTMLInputElement, { name, argument }: Call): void {
    const { parameters, summary } = helpOf(name);
    this.hide();
    this.field = field;
    // Of one that takes any number of them, those behind the last are of its kind.
    const current = Math.min(argument, Math.max(0, parameters.findLastIndex((parameter) => parameter !== "…")));
    const parts = parameters.flatMap((parameter, i) => [
      ...(i > 0 ? [", "] : []), i === current ? make("strong", {}, parameter) : parameter,
    ]);
    this.help.replaceChildren(make("code", {}, `${name}(`, ...parts, ")"), " ", make("span", { class: "quiet" }, this.summary(name, summary)));
    this.list.hidden = true;
    this.help.hidden = false;
    field.setAttribute("aria-describedby", this.help.id);
    this.open();
  }

  private option(name: string, index: number): HTMLElement {
    const { parameters, summary } = helpOf(name);
    return make("div", { role: "option", id: `completion-${index}`, "aria-selected": "false" },
      make("code", {}, make("strong", {}, name), `(${parameters.join(", ")})`), make("span", { class: "quiet" }, this.summary(name, summary)));
  }

  private summary(name: string, words: string): string {
    return this.host.refuses(name) ? t.column.refused(words.replace(/\.$/, "")) : words;
  }

  /** Marks the one that Tab and Enter take. */
  private mark(index: number): void {
    this.list.children[this.at]?.setAttribute("aria-selected", "false");
    this.at = index;
    const option = this.list.children[index];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    this.field?.setAttribute("aria-activedescendant", `completion-${index}`);
  }

  private key(event: KeyboardEvent): boolean {
    const { completion, field } = this;
    if (!completion || !field || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
    const { length } = completion.names;
    if (event.key === "Escape") {
      this.hide();
      this.dismissed = completion.from;
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.isMoved = true;
      this.mark((this.at + (event.key === "ArrowDown" ? 1 : length - 1)) % length);
    } else if (event.key === "Tab" || event.key === "Enter") this.choose(this.at);
    else return false;
    return true;
  }

  private choose(index: number): void {
    const { completion, field } = this;
    const name = completion?.names[index];
    if (!completion || !field || name === undefined) return;
    const { text, caret } = completed(field.value, completion, name, helpOf(name).parameters.length === 0);
    field.value = text;
    field.setSelectionRange(caret, caret);
    this.isMoved = false;
    // The grid and the bar hear it as if it were typed.
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  private open(): void {
    if (!this.panel.matches(":popover-open")) this.panel.showPopover();
    this.place();
  }

  /** Below the field, or above it where there is more room; a phone's keyboard leaves less of the window. */
  private place(): void {
    if (!this.field) return;
    const from = this.field.getBoundingClientRect();
    const view = visualViewport;
    const [top, left] = [view?.offsetTop ?? 0, view?.offsetLeft ?? 0];
    const [bottom, right] = [top + (view?.height ?? innerHeight), left + (view?.width ?? innerWidth)];
    const [above, below] = [from.top - top - 2 * GAP_PX, bottom - from.bottom - 2 * GAP_PX];
    const isBelow = below >= LEAST_PX || below >= above;
    this.panel.style.maxHeight = `${Math.max(0, Math.min(HEIGHT_PX, isBelow ? below : above))}px`;
    const { width, height } = this.panel.getBoundingClientRect();
    this.panel.style.left = `${Math.max(left + GAP_PX, Math.min(from.left, right - width - GAP_PX))}px`;
    this.panel.style.top = `${isBelow ? from.bottom + GAP_PX : from.top - GAP_PX - height}px`;
  }
}
