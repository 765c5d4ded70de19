// Excel's side of the custom functions, for tests: errors, registration, and a formula that streams.

import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";

/** An error as `CustomFunctions.Error` makes it. */
export class FakeError {
  constructor(readonly code: string, readonly message?: string) {}
}

/** A streaming function as Excel calls it. */
export type Streaming = (...args: unknown[]) => void;

/** Loads the built script as Excel's runtime does; gives the functions that it registered. */
export function load(stored: string | null = null): Map<string, Streaming> {
  const functions = new Map<string, Streaming>();
  Object.assign(globalThis, {
    CustomFunctions: {
      Error: FakeError,
      ErrorCode: { invalidValue: "#VALUE!", notAvailable: "#N/A" },
      associate: (name: string, run: Streaming) => functions.set(name, run),
    },
    Office: { context: {} },
    localStorage: { getItem: () => stored },
  });
  // A script's own names are the runtime's globals; in a function they stay out of the way of the next test.
  const code = readFileSync(new URL("../dist/functions.js", import.meta.url), "utf8");
  (runInThisContext(`(function () {\n${code}\n})`) as () => void)();
  return functions;
}

/** A formula: what it was told, and the promise of a value without errors that say "waits". */
export function formula(run: Streaming, ...args: unknown[]) {
  const seen: unknown[][][] = [];
  let settle: (value: unknown[][]) => void;
  const settled = new Promise<unknown[][]>((resolve) => {
    settle = resolve;
  });
  const invocation = {
    onCanceled: () => undefined as void,
    setResult: (value: unknown[][]) => {
      seen.push(value);
      const waits = (cell: unknown) => cell instanceof FakeError && Boolean(cell.message?.includes("waits for its answer"));
      if (!value.flat().some(waits)) settle(value);
    },
  };
  run(...args, invocation);
  return { seen, settled, cancel: () => invocation.onCanceled() };
}
