// Files in and out of the workspace: what is downloaded, what is imported, and what is said of it.

import type { Sheet } from "../core/sheet";
import { asksModel } from "../core/typed";
import { fitWidths } from "../core/widths";
import { type StoredSheet, newSheet } from "../store/sheets";
import { download } from "../ui/dom";
import { csvOf, readFile, unasked, waiting, xlsxOf } from "./files";

const XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

/** What it needs of the workspace. */
export interface TransferHost {
  /** The sheet that is shown. */
  open(): { sheet: Sheet; name: string } | undefined;
  /** Shows a new sheet. */
  add(sheet: StoredSheet): void;
  say(words: string): void;
}

/** Exports and imports. */
export class Transfer {
  constructor(private readonly host: TransferHost) {}

  /** Downloads the open sheet's values. */
  exportCsv(): void {
    const open = this.host.open();
    if (!open) return;
    download(`${open.name}.csv`, "text/csv;charset=utf-8", csvOf(open.sheet));
    this.sayEmpty(open.sheet);
  }

  /** Downloads the open sheet with its formulas. */
  async exportXlsx(): Promise<void> {
    const open = this.host.open();
    if (!open) return;
    download(`${open.name}.xlsx`, XLSX_TYPE, await xlsxOf(open.sheet, open.name));
    this.sayEmpty(open.sheet);
  }

  private sayEmpty(sheet: Sheet): void {
    const count = waiting(sheet);
    const cells = count === 1 ? "1 cell still waits and is" : `${count} cells still wait and are`;
    if (count > 0) this.host.say(`${cells} empty in the file.`);
  }

  /** Opens a file as a new sheet, or several; asks before its formulas ask the model. */
  async importFile(file: File): Promise<void> {
    try {
      const { sheets, note } = await readFile(file);
      const asking = sheets.flatMap(({ rows }) => rows.flat().filter(asksModel)).length;
      const formulas = `${asking} ${asking === 1 ? "formula that asks" : "formulas that ask"}`;
      const question = `${file.name} has ${formulas} the model. Run them? Cancel keeps them as text.`;
      const isText = asking > 0 && !confirm(question);
      const title = file.name.replace(/\.[a-z]+$/i, "");
      // The first one is added last: it is shown then.
      for (const { name, rows } of sheets.toReversed()) {
        const taken = isText ? rows.map((row) => row.map(unasked)) : rows;
        const whole = sheets.length === 1 ? title : `${title}: ${name}`;
        this.host.add(newSheet(whole.slice(0, 80), taken, fitWidths(taken)));
      }
      const rows = sheets.reduce((sum, sheet) => sum + sheet.rows.length, 0);
      const count = `${rows} ${rows === 1 ? "row" : "rows"}${sheets.length > 1 ? ` in ${sheets.length} sheets` : ""} read from ${file.name}.`;
      this.host.say([count, note].filter(Boolean).join(" "));
    } catch (error) {
      this.host.say(`${file.name} is not imported: ${reason(error)}.`);
    }
  }
}

/** An error in words. */
export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
