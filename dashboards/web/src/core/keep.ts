// Formulas that give way to what they are worth, with all that they fill: a column of answers becomes plain text.

import { PENDING } from "relserve-client/value";

import { t } from "../text";

import { type Area, type CellId, cellId, columnOfId, nameOf, rowOf } from "./address";
import { Refusal, type Step } from "./arrange";
import type { Sheet } from "./sheet";
import { isFormula, rawOf } from "./typed";

/** What keeping the values of an area changes. Throws a `Refusal` where one of them is not there yet. */
export function keepValues(sheet: Sheet, area: Area): Step[] {
  return [...formulasIn(sheet, area)].flatMap((owner) => {
    const [row, column] = [rowOf(owner), columnOfId(owner)];
    const filled = sheet.spillOf(row, column) ?? { row, column, rowEnd: row, columnEnd: column };
    const steps: Step[] = [];
    for (let y = filled.row; y <= filled.rowEnd; y += 1) {
      for (let x = filled.column; x <= filled.columnEnd; x += 1) {
        const id = cellId(y, x);
        if (id !== owner && sheet.spilledFrom(y, x) !== owner) continue;
        const value = sheet.value(y, x);
        if (value === PENDING) throw new Refusal(t.failure.waits(nameOf(id)));
        steps.push({ row: y, column: x, before: sheet.raw(y, x), after: rawOf(value) });
      }
    }
    return steps;
  });
}

/** The formulas that stand in an area, or fill cells of it. */
function formulasIn(sheet: Sheet, area: Area): Set<CellId> {
  const found = new Set<CellId>();
  const used = sheet.extent();
  for (let row = area.row; row <= Math.min(area.rowEnd, used.rows - 1); row += 1) {
    for (let column = area.column; column <= Math.min(area.columnEnd, used.columns - 1); column += 1) {
      const owner = sheet.spilledFrom(row, column) ?? (isFormula(sheet.raw(row, column)) ? cellId(row, column) : undefined);
      if (owner !== undefined) found.add(owner);
    }
  }
  return found;
}
