// Names of cells as every sheet writes them: `B7`. Rows and columns count from 0 everywhere but on the screen.

/** `0` is `A`, `26` is `AA`. */
export function columnName(column: number): string {
  let name = "";
  for (let rest = column + 1; rest > 0; rest = Math.floor((rest - 1) / 26)) {
    name = String.fromCharCode(65 + ((rest - 1) % 26)) + name;
  }
  return name;
}

/** `B7` of row 6, column 1. */
export function cellName(row: number, column: number): string {
  return `${columnName(column)}${row + 1}`;
}
