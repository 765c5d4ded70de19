// The words of errors that a function gives without any.

import { CellError, type ErrorCode } from "relserve-client/value";

/** What a library's error means, which has no words of its own. */
const MEANINGS: Partial<Record<ErrorCode, string>> = {
  "#N/A": "nothing like it was found",
  "#VALUE!": "the function does not take such an argument",
  "#REF!": "that place is outside of the range",
  "#NAME?": "the function does not know such a name",
  "#DIV/0!": "a division by zero",
  "#NUM!": "there is no such number, or it is too large",
  "#NULL!": "the ranges have no cell in common",
};

/** An error of this code, explained; of another code, a `#VALUE!`. */
export function explained(code: string): CellError {
  const known = (code in MEANINGS ? code : "#VALUE!") as ErrorCode;
  return new CellError(known, MEANINGS[known]);
}
