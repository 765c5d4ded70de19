// What goes to the clipboard and comes from it: other programs get values; what is typed behind them is kept here for a paste,
// which brings formulas along.

import type { Scalar } from "relserve-client/value";
import { shown } from "relserve-client/value";

import { pastedCsv } from "../core/pasted";
import { shift } from "../core/shift";
import type { Source } from "./selection";

/** What was copied last. */
interface Copied extends Source {
  isCut: boolean;
  values: string[][];
  raws: string[][];
  /** As the clipboard has it. */
  text: string;
}

const at = <T>(matrix: T[][], y: number, x: number) => matrix[y % matrix.length]?.[x % (matrix[0]?.length ?? 1)];
const quoted = (text: string) => (/["\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const plain = (text: string) => text.replace(/\r\n?/g, "\n").trimEnd();

/** Rows as the clipboard has them between spreadsheets. */
export const clipboardText = (rows: readonly (readonly string[])[]) => rows.map((row) => row.map(quoted).join("\t")).join("\r\n");

/** What a grid has copied. */
export class Clipboard {
  private copied: Copied | undefined;

  constructor(private readonly cells: { value(row: number, column: number): Scalar; typed(row: number, column: number): string }) {}

  /** Copies an area of the grid; gives what the clipboard gets. */
  copy(area: readonly number[], isCut: boolean): string {
    const [column, row, columnEnd, rowEnd] = area.map(Number) as [number, number, number, number];
    const [rows, columns] = [rowEnd - row + 1, columnEnd - column + 1];
    const read = <T>(of: (y: number, x: number) => T) =>
      Array.from({ length: rows }, (_, y) => Array.from({ length: columns }, (_, x) => of(row + y, column + x)));
    const values = read((y, x) => shown(this.cells.value(y, x)));
    const raws = read((y, x) => this.cells.typed(y, x) || (values[y - row]?.[x - column] ?? ""));
    const text = clipboardText(values);
    this.copied = { row, column, rows, columns, isCut, values, raws, text };
    return text;
  }

  /** A paste of what was copied here brings formulas, which move with it; anything else is as it is. */
  pasted(lines: readonly (readonly string[])[], row: number, column: number): string[][] | undefined {
    const { copied } = this;
    if (!copied || lines.some((line, y) => line.some((value, x) => value !== at(copied.values, y, x)))) return undefined;
    return lines.map((line, y) =>
      line.map((_, x) => {
        const raw = at(copied.raws, y, x) ?? "";
        if (copied.isCut) return raw;
        const [fromRow, fromColumn] = [copied.row + (y % copied.rows), copied.column + (x % copied.columns)];
        return shift(raw, row + y - fromRow, column + x - fromColumn);
      }),
    );
  }

  /** The rows of a pasted CSV; nothing where it is something else, or was copied here. */
  csv(text: string): string[][] | undefined {
    return this.copied && plain(text) === plain(this.copied.text) ? undefined : pastedCsv(text);
  }

  /** Forgets it: it stands elsewhere now. */
  forget(): void {
    this.copied = undefined;
  }
}
