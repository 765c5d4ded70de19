// The dialog that adds a column of answers: what to do with which column, five rows of it to look at, then all.

import type { AiFunction } from "relserve-client/catalogue";
import { type AiColumn, COLUMN_FUNCTIONS, ColumnError, type Table, fieldsOf, formulaOf, previewOf } from "relserve-client/column";
import { type Scalar, shown } from "relserve-client/value";

import { COLUMNS_MAX } from "../core/address";
import { textColumn } from "../core/text-column";
import { t } from "../text";
import { argumentName, summaryOf } from "../text/functions";
import { element, onClick } from "./dom";
import { make, row } from "./make";

/** What the dialog needs of the open sheet. */
export interface ColumnHost {
  table(): Table | undefined;
  /** Asks the first rows of a column; `show` is told their answers as they come. Gives what calls that off. */
  preview(formula: string, table: Table, show: (answers: Scalar[]) => void): () => void;
  /** A cell's value. */
  value(row: number, column: number): Scalar;
  /** Whether the model that answers refuses a function. */
  refuses(name: string): boolean;
  /** Puts a column with its header into the sheet. */
  add(formula: string, name: string, table: Table): void;
  say(words: string): void;
}

/** A text as it begins a line. */
const capital = (text: string) => `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}`;

/** The dialog. */
export class AiColumnDialog {
  private readonly dialog = element("column", HTMLDialogElement);
  private readonly what = element("column-function", HTMLSelectElement);
  private readonly over = element("column-over", HTMLSelectElement);
  private readonly inputs = element("column-inputs", HTMLDivElement);
  private readonly name = element("column-name", HTMLInputElement);
  private readonly error = element("column-error", HTMLParagraphElement);
  private readonly rows = element("column-preview", HTMLTableSectionElement);
  private table: Table | undefined;
  private stop: (() => void) | undefined;
  /** The column that is most likely asked about. */
  private about: number | undefined;

  constructor(private readonly host: ColumnHost) {
    this.what.append(...COLUMN_FUNCTIONS.map(([name]) => new Option(name, name)));
    this.what.addEventListener("change", () => this.fields());
    onClick("add-column", () => this.open());
    onClick("column-try", () => this.preview());
    onClick("column-cancel", () => this.dialog.close());
    this.dialog.addEventListener("close", () => this.stop?.());
    this.dialog.querySelector("form")?.addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt((formula, table) => {
        this.dialog.close();
        this.host.add(formula, this.name.value.trim() || this.name.placeholder, table);
      });
    });
  }

  /** Says what each function does, and which of them the model that answers refuses. */
  private describe(): void {
    for (const [i, [name, item]] of COLUMN_FUNCTIONS.entries()) {
      const words = name === "AI.ASK" ? t.column.anything : `${item.name}: ${summaryOf(item)}`;
      const option = this.what.options[i];
      if (option) option.text = this.host.refuses(item.name) ? t.column.refused(words) : words;
    }
  }

  private open(): void {
    this.describe();
    this.table = this.host.table();
    if (!this.table) return this.host.say(t.column.noRows);
    if (this.table.free >= COLUMNS_MAX) return this.host.say(t.column.most(COLUMNS_MAX));
    this.about = textColumn(this.table, (row, column) => this.host.value(row, column));
    this.over.replaceChildren(...this.table.headers.map(({ name, column }) => new Option(name, String(column), false, column === this.about)));
    if (this.host.refuses(this.item().name)) this.what.value = this.answered() ?? this.what.value;
    this.error.textContent = this.name.value = "";
    this.rows.replaceChildren();
    this.fields();
    this.dialog.showModal();
    this.what.focus();
  }

  /** A function that the model answers. */
  private answered(): string | undefined {
    return COLUMN_FUNCTIONS.find(([, item]) => !this.host.refuses(item.name))?.[0];
  }

  private item(): AiFunction {
    const [, item] = COLUMN_FUNCTIONS.find(([name]) => name === this.what.value) ?? COLUMN_FUNCTIONS[0] ?? [];
    if (!item) throw new Error("the catalogue is empty");
    return item;
  }

  /** The fields of the chosen function. */
  private fields(): void {
    const item = this.item();
    const isPrompt = item.name === "ask";
    (this.over.closest("label") as HTMLElement).hidden = isPrompt;
    this.inputs.replaceChildren(...fieldsOf(item).map(({ name, optional }) => {
      const isList = name === "labels" || name === "tags";
      const field = name === "prompt"
        ? make("textarea", { name, rows: "3", placeholder: this.example() })
        : make("input", { name, autocomplete: "off", placeholder: isList ? t.column.labels : "" });
      const called = capital(argumentName(name));
      const words = isList ? t.column.byCommas(called) : optional ? t.column.optional(called) : called;
      return make("label", {}, words, field);
    }));
    this.name.placeholder = capital(item.name);
    if (isPrompt) this.inputs.append(this.chips());
    if (this.host.refuses(item.name)) this.inputs.append(make("p", { class: "quiet beyond" }, t.column.beyond));
  }

  /** A prompt that could be. */
  private example(): string {
    const about = this.table?.headers.find(({ column }) => column === this.about);
    return about ? t.column.example(about.name) : "";
  }

  /** Buttons that write a column's name into the prompt. */
  private chips(): HTMLElement {
    const chips = (this.table?.headers ?? []).map(({ name }) => {
      const chip = make("button", { type: "button", class: "chip" }, `{${name}}`);
      chip.addEventListener("click", () => {
        const prompt = this.inputs.querySelector("textarea");
        prompt?.setRangeText(`{${name}}`, prompt.selectionStart, prompt.selectionEnd, "end");
        prompt?.focus();
      });
      return chip;
    });
    return make("div", { class: "chips", role: "group", "aria-label": t.column.chips }, ...chips);
  }

  private wanted(): AiColumn {
    const fields = this.inputs.querySelectorAll<HTMLInputElement | HTMLTextAreaElement>("input, textarea");
    return {
      function: this.what.value, over: Number(this.over.value),
      texts: Object.fromEntries(Array.from(fields, ({ name, value }) => [name, value])),
    };
  }

  private preview(): void {
    this.attempt((_, whole) => {
      const table = previewOf(whole);
      this.stop?.();
      this.stop = this.host.preview(formulaOf(this.wanted(), table), table, (answers) => this.show(table, answers));
    });
  }

  private show({ first, headers }: Table, answers: Scalar[]): void {
    const column = this.item().name === "ask" ? (headers[0]?.column ?? 0) : Number(this.over.value);
    this.rows.replaceChildren(...answers.map((answer, i) => row(shown(this.host.value(first + i, column)), shown(answer))));
  }

  /** Does something with the formula, or says what is wrong with it. */
  private attempt(then: (formula: string, table: Table) => void): void {
    if (!this.table) return;
    try {
      const formula = formulaOf(this.wanted(), this.table);
      this.error.textContent = "";
      then(formula, this.table);
    } catch (error) {
      if (!(error instanceof ColumnError)) throw error;
      this.error.textContent = `${capital(error.message)}.`;
    }
  }
}
