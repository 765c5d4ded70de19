// Which formulas read a cell. Small areas are listed cell by cell, large ones are kept as areas, so that
// neither a column of formulas nor a formula over a column makes an edit slow.

import { type Area, type CellId, cellId, columnOfId, contains, rowOf } from "./address";

const SMALL = 32;

/** The readers of cells. */
export class Dependents {
  private readonly byCell = new Map<CellId, Set<CellId>>();
  private readonly byArea = new Map<CellId, Area[]>();

  /** Says what a formula reads, instead of what it read before. */
  set(reader: CellId, before: readonly Area[], after: readonly Area[]): void {
    for (const area of before) {
      for (const cell of small(area)) {
        const readers = this.byCell.get(cell);
        readers?.delete(reader);
        if (readers?.size === 0) this.byCell.delete(cell);
      }
    }
    for (const area of after) {
      for (const cell of small(area)) {
        const readers = this.byCell.get(cell) ?? new Set();
        this.byCell.set(cell, readers.add(reader));
      }
    }
    const large = after.filter((area) => size(area) > SMALL);
    if (large.length > 0) this.byArea.set(reader, large);
    else this.byArea.delete(reader);
  }

  /** The formulas that read a cell. */
  of(cell: CellId): CellId[] {
    const found = [...(this.byCell.get(cell) ?? [])];
    const [row, column] = [rowOf(cell), columnOfId(cell)];
    for (const [reader, areas] of this.byArea) {
      if (areas.some((area) => contains(area, row, column))) found.push(reader);
    }
    return found;
  }
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
