// What calls are for, in words that people know: the workbook, the sheet, the column and the formula. The server keeps
// them beside what it runs, shows them in the live view and decides nothing by them.

import type { Call } from "./calls";

/** What a call is for; the server cuts what is too long. */
export interface Label {
  workbook?: string;
  sheet?: string;
  /** Letter, and title where the column has one. */
  column?: string;
  formula?: string;
}

/** A call that names its label by number. */
export type LabelledCall = Call & { label?: number };

/** Calls and the labels that they name. */
export interface LabelledCalls {
  calls: LabelledCall[];
  labels: Label[];
}

/** Labels that the server takes with one request. */
export const LABELS_MAX = 256;

/** The calls, each with the label of the one who asked for it first; equal labels go once. */
export function labelled<Asker>(calls: readonly Call[], askers: readonly (Asker | undefined)[], labelOf: (asker: Asker) => Label): LabelledCalls {
  const numbers = new Map<string, number>();
  const labels: Label[] = [];
  const number = (asker: Asker): number | undefined => {
    const label = labelOf(asker);
    const key = JSON.stringify([label.workbook, label.sheet, label.column, label.formula]);
    const known = numbers.get(key);
    if (known !== undefined || labels.length >= LABELS_MAX) return known;
    numbers.set(key, labels.length);
    return labels.push(label) - 1;
  };
  const one = (call: Call, place: number): LabelledCall => {
    const asker = askers[place];
    const label = asker === undefined ? undefined : number(asker);
    return label === undefined ? call : { ...call, label };
  };
  return { calls: calls.map(one), labels };
}
