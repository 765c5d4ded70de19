// The selected formulas with their answers kept, or asked again. Excel itself knows how far a formula spills.

import { isAi, withKept, withoutKept } from "../../shared/formula";

type Cell = string | number | boolean;

/** A formula of the selection with the cells that it fills. */
interface Found {
  anchor: Excel.Range;
  formula: string;
  area: Excel.Range;
  values: Cell[][];
}

/** Formulas looked at in one go: each is a proxy object in memory. */
const FORMULAS_MAX = 5_000;

const UNFINISHED = /^#(N\/A|VALUE!|BUSY!|CALC!|SPILL!|REF!|NAME\?|GETTING_DATA|CONNECT!)/;

async function find(context: Excel.RequestContext): Promise<Found[]> {
  const range = context.workbook.getSelectedRange();
  range.load("formulas");
  await context.sync();
  const places: { anchor: Excel.Range; formula: string; spill: Excel.Range }[] = [];
  (range.formulas as unknown[][]).forEach((line, row) =>
    line.forEach((content, column) => {
      if (typeof content !== "string" || !isAi(content, ".") || places.length >= FORMULAS_MAX) return;
      const anchor = range.getCell(row, column);
      const spill = anchor.getSpillingToRangeOrNullObject();
      anchor.load("values");
      spill.load("values");
      places.push({ anchor, formula: content, spill });
    }),
  );
  await context.sync();
  const found: Found[] = [];
  for (const { anchor, formula, spill } of places) {
    const area = spill.isNullObject ? anchor : spill;
    found.push({ anchor, formula, area, values: area.values as Cell[][] });
  }
  return found;
}

/** A text that stays a text: an answer such as `=WEBSERVICE(...)` or `1/2` must not be typed. */
export function asText(value: Cell): Cell {
  return typeof value === "string" && value !== "" ? `'${value}` : value;
}

function message(done: string, count: number, left: string[]): string {
  const reasons = left.length > 0 ? ` Left as they are: ${left.length} (${[...new Set(left)].join("; ")}).` : "";
  return `${done}: ${count}.${reasons}`;
}

/** Replaces the selected AI formulas by their values. */
export async function keepValues(context: Excel.RequestContext): Promise<string> {
  const left: string[] = [];
  const found = await find(context);
  for (const { area, values } of found) {
    if (values.flat().some((value) => UNFINISHED.test(String(value)))) left.push("its answer is not there");
    else area.values = values.map((row) => row.map(asText));
  }
  await context.sync();
  return message("Formulas kept as values", found.length - left.length, left);
}

/** Puts each answer into its formula, as the last argument. */
export async function keepInFormulas(context: Excel.RequestContext): Promise<string> {
  const left: string[] = [];
  const found = await find(context);
  for (const { anchor, formula, values } of found) {
    if (values.flat().some((value) => UNFINISHED.test(String(value)))) {
      left.push("its answer is not there");
      continue;
    }
    const kept = withKept(formula, values, ".");
    if ("reason" in kept) left.push(kept.reason);
    else anchor.formulas = [[kept.formula]];
  }
  await context.sync();
  return message("Formulas kept with their answers", found.length - left.length, left);
}

/** Enters the selected AI formulas again, without a kept answer. */
export async function askAgain(context: Excel.RequestContext): Promise<string> {
  const found = await find(context);
  for (const { anchor, formula } of found) anchor.formulas = [[withoutKept(formula, ".") ?? formula]];
  await context.sync();
  return message("Asked again", found.length, []);
}
