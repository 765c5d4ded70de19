// The add-in in Excel's shared runtime: custom functions and task pane in one page, one engine for both.

import { RequestError } from "relserve-client/wire";

import { startPane } from "../../pane/pane";
import { Engine } from "../../shared/engine";
import { type Net, askCells, probe } from "../../shared/wire";
import { excelHost } from "./host";
import * as settings from "./settings";
import { type Given, isGiven, shown, valueFrom } from "./values";

const net: Net = {
  fetch: (url, init) => fetch(url, init),
  sleep: (milliseconds, signal) =>
    new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const timer = setTimeout(resolve, milliseconds);
      signal.addEventListener("abort", () => {
        clearTimeout(timer);
        reject(signal.reason);
      });
    }),
};

/** Excel on the web gives each place that embeds it a storage of its own. */
function partition(): string {
  return (Office.context as { partitionKey?: string } | undefined)?.partitionKey ?? "";
}

let changed = () => undefined as void;

const engine = new Engine({
  now: () => Date.now(),
  later: (milliseconds, then) => {
    const timer = setTimeout(then, milliseconds);
    return () => clearTimeout(timer);
  },
  ask: (calls, signal, onCell, onHeard) => {
    const server = settings.load(localStorage, partition());
    if (!server) throw new RequestError("no server is set: open the RelServe pane on the Home tab", 401, undefined, "no_server");
    return askCells(net, server, calls, signal, { onCell, onHeard });
  },
  probe: () => probe(net, settings.load(localStorage, partition())?.url ?? location.origin),
  progress: () => changed(),
});

/** A custom function: called by the functions that the build makes out of the catalogue. */
export function run(
  name: string, args: Given[], kept: Given, invocation: CustomFunctions.StreamingInvocation<unknown[][]>,
): void {
  if (isGiven(kept)) {
    invocation.setResult(kept);
    return;
  }
  invocation.onCanceled = engine.add(name, args.map(valueFrom), (value) => invocation.setResult(shown(value)));
}

// Node has no page: a test loads the functions alone.
if (typeof document !== "undefined") {
  void Office.onReady(() => {
    changed = startPane(engine, excelHost({ store: localStorage, partition: partition(), net }));
  });
}
