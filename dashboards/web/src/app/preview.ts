// A few rows of a column, asked apart from the sheet: nothing of it is typed, and closing it calls it off.

import type { Table } from "relserve-client/column";
import { noUsage } from "relserve-client/usage";
import type { Scalar } from "relserve-client/value";

import type { Sheet } from "../core/sheet";
import { rawOf } from "../core/typed";
import { Session, type SessionHost } from "./session";

/** Computes a formula over the rows of a table; `show` is told its values whenever they change. Gives what ends it. */
export function previewColumn(
  sheet: Pick<Sheet, "value">, formula: string, { first, last, free, headers }: Table, host: SessionHost,
  show: (values: Scalar[]) => void,
): () => void {
  const tell = () => show(Array.from({ length: last - first + 1 }, (_, i) => session.sheet.value(first + i, free)));
  const session: Session = new Session({ ...host, paint: tell, progress: () => undefined }, noUsage());
  const cells = Array.from({ length: last - first + 1 }, (_, i) =>
    headers.map(({ column }) => ({ row: first + i, column, raw: rawOf(sheet.value(first + i, column)) })));
  session.set([...cells.flat(), { row: first, column: free, raw: formula }]);
  return () => session.close();
}
