// Areas of the grid as they are selected and copied.

/** An area by its first cell and its size. */
export interface Source {
  row: number;
  column: number;
  rows: number;
  columns: number;
}

/** The area between two corners, columns first. */
export function source([x1 = 0, y1 = 0, x2 = 0, y2 = 0]: number[]): Source {
  return {
    row: Math.min(y1, y2), column: Math.min(x1, x2), rows: Math.abs(y2 - y1) + 1, columns: Math.abs(x2 - x1) + 1,
  };
}
