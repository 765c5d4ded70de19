// What ranges hold, read once for all formulas that read them: a column of `=A2/SUM(A:A)` reads column A once and
// adds it up once. Values are kept by where a range begins, so that a running total, `SUM(A$1:A2)` and so on down,
// reads each cell once as well. Nothing of it may be changed by who gets it.

import { CellError, type ErrorCode, type Matrix, PENDING, type Scalar } from "relserve-client/value";

import { type Area, type CellId, columnOfId, rowOf } from "./address";

/** The numbers of a range; blank cells, texts and truth values are left out, as in every spreadsheet. */
export interface Numbers {
  readonly list: readonly number[];
  /** The first error, if there is one. */
  readonly error: CellError | undefined;
  readonly isPending: boolean;
  /** What functions made of the list, by their names. */
  readonly results: Map<string, number | ErrorCode>;
}

/** The numbers among values. */
export function numbersOf(values: Iterable<Scalar>): Numbers {
  const list: number[] = [];
  let error: CellError | undefined;
  let isPending = false;
  for (const value of values) {
    if (typeof value === "number") list.push(value);
    else if (value === PENDING) isPending = true;
    else if (value instanceof CellError) error ??= value;
  }
  return { list, error, isPending, results: new Map() };
}

/** Values from a row on down, row by row, with what was last made of all of them. */
interface Run {
  row: number;
  column: number;
  columnEnd: number;
  values: Scalar[];
  matrix: Matrix | undefined;
  numbers: Numbers | undefined;
}

/** A range of less is read each time: a sheet may have one for each row. */
const LEAST = 64;
/** Most beginnings, each of which every change of a cell is compared with, and most cells of them together. */
const RUNS_MAX = 256;
const CELLS_MAX = 1_000_000;

/** The ranges of a sheet. */
export class Ranges {
  private readonly runs = new Map<string, Run>();
  private cells = 0;

  constructor(private readonly value: (row: number, column: number) => Scalar) {}

  /** The values of an area, rows of columns. */
  matrix(area: Area): Matrix {
    const [rows, columns] = size(area);
    if (rows * columns < LEAST) return rowsOf(this.read(area, 0), columns);
    const run = this.run(area);
    if (run.matrix?.length !== rows) run.matrix = rowsOf(run.values.slice(0, rows * columns), columns);
    return run.matrix;
  }

  /** The numbers of an area. */
  numbers(area: Area): Numbers {
    const [rows, columns] = size(area);
    if (rows * columns < LEAST) return numbersOf(this.read(area, 0));
    const run = this.run(area);
    if (run.values.length > rows * columns) return numbersOf(run.values.slice(0, rows * columns));
    run.numbers ??= numbersOf(run.values);
    return run.numbers;
  }

  /** A cell is worth something else now. */
  changed(id: CellId): void {
    const [row, column] = [rowOf(id), columnOfId(id)];
    for (const run of this.runs.values()) {
      if (row < run.row || column < run.column || column > run.columnEnd) continue;
      const kept = (row - run.row) * (run.columnEnd - run.column + 1);
      if (kept >= run.values.length) continue;
      this.cells -= run.values.length - kept;
      run.values.length = kept;
      run.matrix = run.numbers = undefined;
    }
  }

  /** The values from where an area begins, as far down as it goes at least. */
  private run(area: Area): Run {
    const { row, column, columnEnd } = area;
    const key = `${row},${column},${columnEnd}`;
    const [rows, columns] = size(area);
    const missing = rows * columns - (this.runs.get(key)?.values.length ?? 0);
    if (missing > 0 && (this.cells + missing > CELLS_MAX || (this.runs.size >= RUNS_MAX && !this.runs.has(key)))) this.clear();
    const run = this.runs.get(key) ?? { row, column, columnEnd, values: [], matrix: undefined, numbers: undefined };
    this.runs.set(key, run);
    const have = run.values.length;
    if (have < rows * columns) {
      for (const value of this.read(area, have / columns)) run.values.push(value);
      this.cells += run.values.length - have;
      run.matrix = run.numbers = undefined;
    }
    return run;
  }

  private clear(): void {
    this.runs.clear();
    this.cells = 0;
  }

  /** The values of an area, without its first rows. */
  private read({ row, rowEnd, column, columnEnd }: Area, skipped: number): Scalar[] {
    const values: Scalar[] = [];
    for (let y = row + skipped; y <= rowEnd; y += 1) {
      for (let x = column; x <= columnEnd; x += 1) values.push(this.value(y, x));
    }
    return values;
  }
}

function size({ row, rowEnd, column, columnEnd }: Area): [rows: number, columns: number] {
  return [rowEnd - row + 1, columnEnd - column + 1];
}

function rowsOf(values: Scalar[], columns: number): Matrix {
  return Array.from({ length: values.length / columns }, (_, y) => values.slice(y * columns, (y + 1) * columns));
}
