// A set of cells that knows its columns, so that a range asks only those that it has.

import { type Area, type CellId, cellId, columnOfId, rowOf } from "./address";

/** A set of cells. */
export class CellSet {
  private readonly byColumn = new Map<number, Set<CellId>>();
  private count = 0;

  get size(): number {
    return this.count;
  }

  has(id: CellId): boolean {
    return this.byColumn.get(columnOfId(id))?.has(id) ?? false;
  }

  add(id: CellId): void {
    const column = columnOfId(id);
    const cells = this.byColumn.get(column) ?? new Set();
    this.byColumn.set(column, cells);
    if (cells.has(id)) return;
    cells.add(id);
    this.count += 1;
  }

  delete(id: CellId): void {
    if (this.byColumn.get(columnOfId(id))?.delete(id)) this.count -= 1;
  }

  clear(): void {
    this.byColumn.clear();
    this.count = 0;
  }

  /** All cells, by rows. */
  sorted(): CellId[] {
    return [...this.byColumn.values()].flatMap((cells) => [...cells]).sort((a, b) => a - b);
  }

  /** The cells in an area, also those that come and without those that go meanwhile. */
  *in(area: Area): Generator<CellId> {
    for (let column = area.column; column <= area.columnEnd; column += 1) {
      const cells = this.byColumn.get(column);
      if (!cells || cells.size === 0) continue;
      if (cells.size < area.rowEnd - area.row) {
        for (const id of cells) if (rowOf(id) >= area.row && rowOf(id) <= area.rowEnd) yield id;
      } else {
        for (let row = area.row; row <= area.rowEnd; row += 1) if (cells.has(cellId(row, column))) yield cellId(row, column);
      }
    }
  }
}
