// The words of errors that a function gives without any.

import { CellError, type ErrorCode } from "relserve-client/value";

import { t } from "../text";

/** What a library's error means, which has no words of its own. */
const MEANINGS: Partial<Record<ErrorCode, string>> = t.cell.meanings;

/** An error of this code, explained; of another code, a `#VALUE!`. */
export function explained(code: string): CellError {
  const known = (code in MEANINGS ? code : "#VALUE!") as ErrorCode;
  return new CellError(known, MEANINGS[known]);
}
