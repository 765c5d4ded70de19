// From what a sheet hands to a custom function to calls of the server, and back: what both add-ins share. How a
// range becomes calls is decided where the web page decides it (`client/src/calls.ts`).

import { type Answer, type Call, type Item, type Plan, answered, keyOf, plan } from "relserve-client/calls";
import { CATALOGUE } from "relserve-client/catalogue";
import { CellError, PENDING, type Scalar, type Value, isMatrix } from "relserve-client/value";
import { type WireCell, type WireError, failure } from "relserve-client/wire";

/** A cell of a whole reply, where its place in the array is its place among the calls. */
export type Cell = Omit<WireCell, "index">;

/** A cell's error. */
export function errorOf(error: WireError): CellError {
  return failure(error);
}

/** The answer that a cell of a reply has; not for one that waits. */
export function answerOf({ value, error, details }: Cell): Answer {
  return { ...(error ? { error: errorOf(error) } : { value: value ?? "" }), ...(details ? { details } : {}) };
}

/** The calls of one formula. */
export interface Question {
  plan: Plan;
  /** Its distinct calls, by key. */
  calls: Map<string, Call>;
}

/** Plans a formula. `values` are what the sheet gave, already as values; `undefined` is an argument left out. */
export function question(name: string, values: (Value | undefined)[]): Question {
  const item = CATALOGUE.get(name);
  if (!item) throw new Error(`there is no function ${name}`);
  const planned = plan(item, values);
  const calls = new Map<string, Call>();
  for (const asked of planned.rows.flat()) if ("call" in asked) calls.set(keyOf(asked.call), asked.call);
  return { plan: planned, calls };
}

/** The formula's value, as far as answers are known; `answerOf` gives `undefined` for one that is not. */
export function valueOf({ plan: planned }: Question, answerOf: (key: string) => Answer | undefined): Value {
  const value = (asked: Item): Value => {
    if ("known" in asked) return asked.known;
    const answer = answerOf(keyOf(asked.call));
    return answer ? answered(answer) : PENDING;
  };
  if (!planned.isRange) {
    const only = planned.rows[0]?.[0];
    return only ? value(only) : null;
  }
  // A list inside a range has no place of its own: its lines share the cell.
  const cell = (asked: Item): Scalar => {
    const read = value(asked);
    return isMatrix(read) ? read.flat().join("\n") : read;
  };
  return planned.rows.map((row) => row.map(cell));
}

const ERRORS = /^#(N\/A|VALUE!|REF!|NAME\?|DIV\/0!|NUM!|NULL!|SPILL!|CALC!|BUSY!|ERROR!|PENDING!)/;

/** A cell that holds an error arrives as its text: nobody asks a model about that. */
export function scalar(cell: string | number | boolean | null): Scalar {
  if (typeof cell !== "string") return cell;
  if (cell === "") return null;
  if (!ERRORS.test(cell)) return cell;
  return cell.startsWith("#VALUE!")
    ? new CellError("#VALUE!", "an argument is an error")
    : new CellError("#N/A", "an argument is an error, or waits for its answer");
}
