// Answers of a column into the sheet as they come: one write at a time, of the rows that are new since the one before, since
// a sheet takes a whole range far faster than its cells.

import { CellError, type Matrix, PENDING, type Scalar } from "relserve-client/value";

import { STOPPED } from "../shared/engine";

/** What is written of an answer: text or number; an error in its own words. */
export type Written = string | number | null;

/** Writes rows from one on. */
export type Write = (from: number, answers: Written[]) => Promise<void>;

/** A column that fills. */
export class Fill {
  private readonly written: (Written | undefined)[] = [];
  private shown: Written[] = [];
  private writing = Promise.resolve();
  private isWriting = false;
  private isDue = false;

  constructor(private readonly write: Write, private readonly failed: (error: unknown) => void) {}

  /** Takes the column as it is known now. */
  show(rows: Matrix): void {
    this.shown = rows.map((row) => writtenOf(row[0] ?? null));
    this.isDue = true;
    if (!this.isWriting) this.writing = this.work();
  }

  /** Resolves once all that was shown is written. */
  settled(): Promise<void> {
    return this.writing;
  }

  private async work(): Promise<void> {
    this.isWriting = true;
    while (this.isDue) {
      this.isDue = false;
      const { shown } = this;
      const isNew = (_: unknown, row: number) => shown[row] !== (this.written[row] ?? null);
      const first = shown.findIndex(isNew);
      if (first < 0) continue;
      const end = shown.findLastIndex(isNew) + 1;
      const answers = shown.slice(first, end);
      // A sheet that refuses is not asked again for every answer.
      try {
        await this.write(first, answers);
      } catch (error) {
        this.failed(error);
        break;
      }
      answers.forEach((answer, i) => {
        this.written[first + i] = answer;
      });
    }
    this.isWriting = false;
  }
}

function writtenOf(value: Scalar): Written {
  // A row that was stopped stays blank, as one that is not there yet.
  if (value === PENDING || value === null || value === STOPPED) return null;
  if (value instanceof CellError) return `${value.code} ${value.note}`.trim();
  return typeof value === "boolean" ? String(value) : value;
}
