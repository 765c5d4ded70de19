// Which of a formula's calls are one cell's: of a range of answers as large as what the formula fills, the one at the
// cell's place; of anything else all, since all may count in it.

import { type Call, type Item, type Plan, keyOf } from "relserve-client/calls";
import type { Matrix } from "relserve-client/value";

/** The calls of the cell that stands so many rows and columns behind the formula, which fills `spill`. */
export function callsFor(
  plans: readonly Plan[], [y, x]: readonly [number, number], spill: Matrix | undefined,
): Map<string, Call> {
  const calls = new Map<string, Call>();
  for (const { rows, isRange } of plans) {
    const isOwn = isRange && rows.length === spill?.length && rows[0]?.length === spill[0]?.length;
    const items: readonly (Item | undefined)[] = isOwn ? [rows[y]?.[x]] : rows.flat();
    for (const item of items) if (item && "call" in item) calls.set(keyOf(item.call), item.call);
  }
  return calls;
}
