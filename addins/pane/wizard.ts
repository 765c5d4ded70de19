// The wizard: what to do with which column of the open sheet, five rows of it to look at, what it costs, then all.

import type { Call } from "relserve-client/calls";
import type { AiFunction } from "relserve-client/catalogue";
import { type AiColumn, COLUMN_FUNCTIONS, ColumnError, type Table, fieldsOf, formulaOf, previewOf, valuesOf } from "relserve-client/column";
import { type Matrix, type Scalar, isMatrix, shown } from "relserve-client/value";

import type { Engine } from "../shared/engine";
import { at, make, onClick, wordsOf, write } from "./dom";
import { Fill } from "./fill";
import type { PaneHost } from "./host";
import { type Told, estimateOf } from "./server";
import { type OpenTable, openTable } from "./table";
import { count, estimateLines, refusal } from "./words";

/** More new calls than this are told with their costs before they go out, as on the page. */
export const FREELY = 1_000;

/** The wizard. */
export class Wizard {
  private readonly what = at("what", HTMLSelectElement);
  private readonly over = at("over", HTMLSelectElement);
  private readonly inputs = at("inputs", HTMLDivElement);
  private readonly title = at("title", HTMLInputElement);
  private readonly preview = at("preview", HTMLTableElement);
  private readonly estimate = at("estimate", HTMLDivElement);
  private open: OpenTable | undefined;
  /** Its titles, as they are offered. */
  private headers = "";
  private endPreview: (() => void) | undefined;
  private answer: ((isAllowed: boolean) => void) | undefined;

  constructor(private readonly host: PaneHost, private readonly engine: Engine) {
    const label = (name: string, { summary }: AiFunction) => (name === "AI.ASK" ? "Ask anything of each row" : `${name.slice(3).toLowerCase()}: ${summary}`);
    this.what.append(...COLUMN_FUNCTIONS.map(([name, item]) => new Option(label(name, item), name)));
    const usual = document.querySelector<HTMLInputElement>(`input[name=as][value=${host.usual}]`);
    if (usual) usual.checked = true;
    this.what.addEventListener("change", () => this.fields());
    onClick("read", () => void this.attempt(() => this.read()));
    onClick("try", () => void this.attempt(() => this.look()));
    onClick("estimate-run", () => this.decide(true));
    onClick("estimate-cancel", () => this.decide(false));
    this.estimate.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.decide(false);
    });
    at("wizard", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      void this.attempt(() => this.add());
    });
    this.fields();
  }

  /** Reads the open sheet; what is chosen stays where its columns are still there. */
  async read(): Promise<OpenTable | undefined> {
    const cells = await this.host.read();
    this.open = cells && openTable(cells);
    const headers = this.open?.table.headers ?? [];
    write(at("sheet-line", HTMLSpanElement), this.open ? sheetLine(this.open) : "The open sheet is empty.");
    // A list that is open stays open where nothing has changed.
    if (JSON.stringify(headers) === this.headers) return this.open;
    this.headers = JSON.stringify(headers);
    const chosen = this.over.value;
    this.over.replaceChildren(...headers.map(({ name, column }) => new Option(name, String(column))));
    if (headers.some(({ column }) => String(column) === chosen)) this.over.value = chosen;
    this.inputs.querySelector(".chips")?.replaceWith(this.chips());
    return this.open;
  }

  private item(): AiFunction {
    const [, item] = COLUMN_FUNCTIONS.find(([name]) => name === this.what.value) ?? COLUMN_FUNCTIONS[0] ?? [];
    if (!item) throw new Error("the catalogue is empty");
    return item;
  }

  /** The fields of the chosen function. */
  private fields(): void {
    this.closePreview();
    const item = this.item();
    const isPrompt = item.name === "ask";
    at("over-label", HTMLLabelElement).hidden = isPrompt;
    this.inputs.replaceChildren(...fieldsOf(item).map(({ name, optional }) => {
      const field = name === "prompt" ? make("textarea", { name, rows: "3" }) : make("input", { name, autocomplete: "off" });
      const words = name === "labels" || name === "tags" ? `${name}, separated by commas` : optional ? `${name} (may stay empty)` : name;
      return make("label", {}, `${words[0]?.toUpperCase() ?? ""}${words.slice(1)} `, field);
    }));
    if (isPrompt) this.inputs.append(this.chips());
  }

  /** Buttons that write a column's name into the prompt. */
  private chips(): HTMLElement {
    const chips = (this.open?.table.headers ?? []).map(({ name }) => {
      const chip = make("button", { type: "button", class: "chip" }, `{${name}}`);
      chip.addEventListener("click", () => {
        const prompt = this.inputs.querySelector("textarea");
        prompt?.setRangeText(`{${name}}`, prompt.selectionStart, prompt.selectionEnd, "end");
        prompt?.focus();
      });
      return chip;
    });
    return make("div", { class: "chips", role: "group", "aria-label": "Columns to name in the prompt" }, ...chips);
  }

  private wanted(): AiColumn {
    const fields = this.inputs.querySelectorAll<HTMLInputElement | HTMLTextAreaElement>("input, textarea");
    const texts = Object.fromEntries(Array.from(fields, ({ name, value }) => [name, value]));
    return { function: this.what.value, over: Number(this.over.value), texts };
  }

  /** The sheet as it is now, which may be another than when the pane was opened. */
  private async now(): Promise<OpenTable> {
    const open = await this.read();
    if (!open) throw new ColumnError("the open sheet has no rows: type or paste some first");
    return open;
  }

  private async look(): Promise<void> {
    const { table, value } = await this.now();
    const wanted = this.wanted();
    const first = previewOf(table);
    const values = valuesOf(wanted, first, value);
    this.closePreview();
    this.preview.hidden = false;
    const own = this.item().name === "ask" ? (first.headers[0]?.column ?? 0) : wanted.over;
    const show = (answers: Matrix) => {
      const rows = answers.map(([answer], i) => [shown(value(first.first + i, own)), shownAnswer(answer ?? null)]);
      at("preview-rows", HTMLTableSectionElement).replaceChildren(
        ...rows.map((cells) => make("tr", {}, ...cells.map((text) => make("td", {}, text)))));
    };
    show(Array.from({ length: first.last - first.first + 1 }, () => ["…"]));
    this.endPreview = this.engine.add(wanted.function, values, (answers) => show(isMatrix(answers) ? answers : [[answers]]));
  }

  private closePreview(): void {
    this.endPreview?.();
    this.endPreview = undefined;
    this.preview.hidden = true;
  }

  private async add(): Promise<void> {
    const { cells, table, value } = await this.now();
    const wanted = this.wanted();
    const formula = formulaOf(wanted, table, this.host.dialect);
    const values = valuesOf(wanted, table, value);
    const isFormula = document.querySelector<HTMLInputElement>("input[name=as]:checked")?.value === "formula";
    if (isFormula && (await this.host.settings()).formulas === false) {
      throw new ColumnError("formulas may not use your key: tick that above, or write the answers");
    }
    const calls = this.engine.unknown(wanted.function, values);
    if (calls.length > FREELY && !(await this.isAllowed(calls))) return;
    this.closePreview();
    const place = { sheet: cells.id, row: table.first, column: table.free };
    const title = this.title.value.trim() || this.item().name;
    if (hasHeader(table, cells.row)) await this.host.writeCell({ ...place, row: table.first - 1 }, title);
    if (isFormula) {
      await this.host.writeCell(place, formula);
      return;
    }
    const write = (from: number, answers: (string | number | null)[]) =>
      this.host.writeAnswers({ ...place, row: table.first + from }, answers);
    const fill = new Fill(write, (error) => this.fail(error));
    this.engine.add(wanted.function, values, (answers) => fill.show(isMatrix(answers) ? answers : [[answers]]));
  }

  /** Tells what calls will cost, and asks whether they may go out. */
  private isAllowed(calls: Call[]): Promise<boolean> {
    this.decide(false);
    const run = at("estimate-run", HTMLButtonElement);
    const [list, words] = [at("estimate-list", HTMLDListElement), at("estimate-refusal", HTMLParagraphElement)];
    list.replaceChildren(...pairs([["Cells to ask", count(calls.length)], ["Tokens and time", "…"]]));
    write(words, "");
    run.disabled = false;
    this.estimate.hidden = false;
    at("estimate-title", HTMLHeadingElement).focus();
    return new Promise((resolve) => {
      this.answer = resolve;
      void estimateOf((path) => this.host.get(path), calls).then((told: Told) => {
        if (this.answer !== resolve) return;
        list.replaceChildren(...pairs(estimateLines(told)));
        const refused = refusal(told);
        write(words, refused?.words ?? "");
        run.disabled = refused?.isOver ?? false;
      });
    });
  }

  private decide(isAllowed: boolean): void {
    const answer = this.answer;
    this.answer = undefined;
    if (!this.estimate.hidden) at("add", HTMLButtonElement).focus();
    this.estimate.hidden = true;
    answer?.(isAllowed);
  }

  private async attempt(what: () => Promise<unknown>): Promise<void> {
    write(at("wizard-error", HTMLParagraphElement), "");
    await what().catch((error: unknown) => this.fail(error));
  }

  private fail(error: unknown): void {
    const words = wordsOf(error);
    write(at("wizard-error", HTMLParagraphElement), `${words[0]?.toUpperCase() ?? ""}${words.slice(1)}${words.endsWith(".") ? "" : "."}`);
  }
}

/** A row above the data is one of titles. */
function hasHeader({ first }: Table, top: number): boolean {
  return first > top;
}

function sheetLine({ cells, table }: OpenTable): string {
  const rows = table.last - table.first + 1;
  return `${cells.name}: ${count(rows)} ${rows === 1 ? "row" : "rows"}, ${count(table.headers.length)} columns`;
}

function shownAnswer(answer: Scalar): string {
  if (typeof answer === "object" && answer !== null) return `${answer.code} ${answer.note}`.trim();
  return shown(answer);
}

function pairs(lines: readonly [string, string][]): HTMLElement[] {
  return lines.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]);
}
