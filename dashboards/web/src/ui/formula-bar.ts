// The bar above the grid: it shows what is typed in the selected cell, and what is typed in it goes to that cell when somebody
// goes on, by Enter or by a press elsewhere.

import { element } from "./dom";

/** What the bar needs of the page. */
export interface FormulaBarHost {
  /** The selected cell. */
  selected(): readonly [row: number, column: number];
  type(row: number, column: number, raw: string): void;
  /** The bar is left: the next cell is selected, where one is given, and the keys are the grid's if they were not taken elsewhere. */
  left(next?: readonly [row: number, column: number]): void;
}

/** A cell whose text is in the bar while somebody may change it. */
interface Opened {
  row: number;
  column: number;
  raw: string;
}

/** The formula bar. */
export class FormulaBar {
  private readonly input = element("formula", HTMLInputElement);
  /** What it says of an empty cell. */
  private readonly hint = this.input.placeholder;
  private opened: Opened | undefined;

  constructor(private readonly host: FormulaBarHost) {
    // Another window in front ends nothing: the bar still has what was typed.
    this.input.addEventListener("focus", () => (this.opened ??= this.open()));
    this.input.addEventListener("blur", () => {
      if (document.activeElement !== this.input) this.take();
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  /** Gives the keys to it. */
  focus(): void {
    this.input.focus();
  }

  /** Where somebody types, if in the bar. */
  get field(): HTMLInputElement | undefined {
    return this.opened && document.activeElement === this.input ? this.input : undefined;
  }

  /** Shows the text of the selected cell, or the formula that fills it, unless somebody types in the bar. */
  show(raw: string, behind: string): void {
    this.input.placeholder = behind || this.hint;
    if (this.opened && this.input.value !== this.opened.raw) return;
    this.input.value = raw;
    if (this.opened) this.opened = this.open();
  }

  /** Shows what is being typed in the cell itself, which has room for little of a formula. */
  mirror(text: string): void {
    if (!this.opened) this.input.value = text;
  }

  /** Types what is in the bar into the cell that it was opened for. */
  take(): void {
    const { opened } = this;
    this.opened = undefined;
    if (opened && this.input.value !== opened.raw) this.host.type(opened.row, opened.column, this.input.value);
    if (document.activeElement === this.input) this.opened = this.open();
  }

  /** Forgets what is typed in it: its cell is shown no more. */
  forget(): void {
    this.opened = undefined;
  }

  private open(): Opened {
    const [row, column] = this.host.selected();
    return { row, column, raw: this.input.value };
  }

  private key(event: KeyboardEvent): void {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    const at = this.opened ?? this.open();
    if (event.key === "Enter") this.take();
    this.opened = undefined;
    this.input.blur();
    this.host.left(event.key === "Enter" ? [at.row + 1, at.column] : undefined);
    event.preventDefault();
    event.stopPropagation();
  }
}
