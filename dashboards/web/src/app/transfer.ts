// Files in and out of the workspace: what is downloaded, what is imported, and what is said of it.

import type { Book } from "../core/book";
import type { Layout } from "../core/layout";
import type { Sheet } from "../core/sheet";
import { asksModel } from "../core/typed";
import { fitWidths } from "../core/widths";
import { type StoredSheet, TITLE_MAX, newSheet } from "../store/sheets";
import { t } from "../text";
import { confirmed } from "../ui/ask";
import { download } from "../ui/dom";
import { csvOf, readFile, unasked, waiting, xlsxOf } from "./files";
import { reason } from "./reason";
import { TABS_MAX, keepSheets } from "./tabs";

const XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

/** What it needs of the workspace. */
export interface TransferHost {
  /** The workbook that is open, its sheet that is shown, and how each looks. */
  open(): { book: Book; sheet: Sheet; name: string; looks: ReadonlyMap<string, { layout: Layout }> } | undefined;
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

  /** Downloads the open workbook with its formulas. */
  async exportXlsx(): Promise<void> {
    const open = this.host.open();
    if (!open) return;
    download(`${open.name}.xlsx`, XLSX_TYPE, await xlsxOf(open.book.members, open.name, open.looks));
    this.sayEmpty(...open.book.members.map(({ sheet }) => sheet));
  }

  private sayEmpty(...sheets: Sheet[]): void {
    const count = sheets.reduce((sum, sheet) => sum + waiting(sheet), 0);
    if (count > 0) this.host.say(t.transfer.stillWaiting(count));
  }

  /** Opens a file as a new workbook; asks before its formulas ask the model. */
  async importFile(file: File): Promise<void> {
    try {
      const { sheets, note } = await readFile(file);
      const asking = sheets.flatMap(({ rows }) => rows.flat().filter(asksModel)).length;
      const question = t.transfer.question(file.name, asking);
      const isText = asking > 0 && !(await confirmed(question, t.transfer.run, t.transfer.asText));
      const title = file.name.replace(/\.[a-z]+$/i, "");
      if (sheets.length > TABS_MAX) throw new Error(t.failure.tabsMax(TABS_MAX, sheets.length));
      const workbook = newSheet(title.slice(0, TITLE_MAX));
      keepSheets(workbook, sheets.map(({ name, rows, layout }) => {
        const taken = isText ? rows.map((row) => row.map(unasked)) : rows;
        return { name: sheets.length === 1 ? t.workbook.tab(1) : name, rows: taken, widths: fitWidths(taken), ...(layout ? { layout } : {}) };
      }));
      this.host.add(workbook);
      const rows = sheets.reduce((sum, sheet) => sum + sheet.rows.length, 0);
      const count = sheets.length > 1 ? t.transfer.readSheets(rows, sheets.length, file.name) : t.transfer.read(rows, file.name);
      this.host.say([count, note].filter(Boolean).join(" "));
    } catch (error) {
      this.host.say(t.transfer.notImported(file.name, reason(error)));
    }
  }
}
