// Which formulas read a cell. Small areas are listed cell by cell. A large one is kept once, with all that read it,
// under each of its columns: neither a column of formulas over one range nor a formula over a column makes an edit slow.

import { type Area, type CellId, cellId, columnOfId, contains, rowOf } from "./address";

const SMALL = 32;

/** A large area and its readers. */
export interface Large {
  area: Area;
  readers: Set<CellId>;
}

/** The readers of cells. */
export class Dependents {
  private readonly byCell = new Map<CellId, Set<CellId>>();
  private readonly byColumn = new Map<number, Map<string, Large>>();

  /** Says what a formula reads, instead of what it read before. */
  set(reader: CellId, before: readonly Area[], after: readonly Area[]): void {
    for (const area of before) {
      for (const cell of small(area)) {
        const readers = this.byCell.get(cell);
        readers?.delete(reader);
        if (readers?.size === 0) this.byCell.delete(cell);
      }
      if (size(area) > SMALL) this.removeLarge(reader, area);
    }
    for (const area of after) {
      for (const cell of small(area)) {
        const readers = this.byCell.get(cell) ?? new Set();
        this.byCell.set(cell, readers.add(reader));
      }
      if (size(area) > SMALL) this.addLarge(reader, area);
    }
  }

  /** The formulas that read a cell; one that reads it twice may come twice. Large areas that were `met` are left out. */
  *of(cell: CellId, met?: Set<Large>): Generator<CellId> {
    yield* this.byCell.get(cell) ?? [];
    const [row, column] = [rowOf(cell), columnOfId(cell)];
    for (const large of this.byColumn.get(column)?.values() ?? []) {
      if (met?.has(large) || !contains(large.area, row, column)) continue;
      met?.add(large);
      yield* large.readers;
    }
  }

  private addLarge(reader: CellId, area: Area): void {
    const key = keyOf(area);
    const large = this.byColumn.get(area.column)?.get(key) ?? { area, readers: new Set() };
    large.readers.add(reader);
    for (let column = area.column; column <= area.columnEnd; column += 1) {
      const inColumn = this.byColumn.get(column) ?? new Map<string, Large>();
      this.byColumn.set(column, inColumn.set(key, large));
    }
  }

  private removeLarge(reader: CellId, area: Area): void {
    const key = keyOf(area);
    const large = this.byColumn.get(area.column)?.get(key);
    large?.readers.delete(reader);
    if (large?.readers.size !== 0) return;
    for (let column = area.column; column <= area.columnEnd; column += 1) this.byColumn.get(column)?.delete(key);
  }
}

function keyOf({ row, column, rowEnd, columnEnd }: Area): string {
  return `${row},${column},${rowEnd},${columnEnd}`;
}

function size(area: Area): number {
  return (area.rowEnd - area.row + 1) * (area.columnEnd - area.column + 1);
}

function* small(area: Area): Generator<CellId> {
  if (size(area) > SMALL) return;
  for (let row = area.row; row <= area.rowEnd; row += 1) {
    for (let column = area.column; column <= area.columnEnd; column += 1) yield cellId(row, column);
  }
}
