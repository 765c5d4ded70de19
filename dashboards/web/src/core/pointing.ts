// References that somebody points at while a formula is typed.

import { cellName, columnName } from "./address";

/** A cell, or a whole column. */
export interface Pointed {
  row: number | undefined;
  column: number;
}

/** Whether a reference may stand behind what was typed so far: behind a sign, outside of texts in quotes. */
export function takesReference(before: string): boolean {
  const isText = (before.split('"').length - 1) % 2 === 1;
  return before.startsWith("=") && !isText && /[=(,;+\-*/&<>^]\s*$/.test(before);
}

/** The reference to all between two. */
export function referenceTo(from: Pointed, to: Pointed): string {
  const [left, right] = [Math.min(from.column, to.column), Math.max(from.column, to.column)];
  if (from.row === undefined || to.row === undefined) return `${columnName(left)}:${columnName(right)}`;
  const [first, last] = [cellName(Math.min(from.row, to.row), left), cellName(Math.max(from.row, to.row), right)];
  return first === last ? first : `${first}:${last}`;
}
