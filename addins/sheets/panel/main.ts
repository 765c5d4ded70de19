// The sidebar of Google Sheets: the pane over the script's functions.

import { LIMITS } from "relserve-client/batcher";
import type { Dialect } from "relserve-client/column";
import { RequestError } from "relserve-client/wire";

import type { PaneHost, Settings, SheetCells } from "../../pane/host";
import { startPane } from "../../pane/pane";
import { Engine } from "../../shared/engine";
import { type Bounds, askCells, probe } from "../../shared/wire";
import { type Run, scriptNet } from "./net";

interface Runner {
  withSuccessHandler(then: (value: unknown) => void): Runner;
  withFailureHandler(then: (error: Error) => void): Runner;
  [name: string]: (...args: never[]) => unknown;
}

declare const google: { script: { run: Runner } };

const run: Run = <T>(name: string, ...args: unknown[]) =>
  new Promise<T>((resolve, reject) => {
    const runner = google.script.run.withSuccessHandler(resolve as (value: unknown) => void).withFailureHandler(reject);
    runner[name]?.(...(args as never[]));
  });

/** A formula in Sheets: names cannot hold a dot, `;` parts arguments in every locale, and `&` joins cell by cell only so. */
const DIALECT: Dialect = {
  name: (name) => name.replace(".", "_"), separator: "; ", joined: (text) => `ARRAYFORMULA(${text})`,
};

/** A ticket is looked at often enough to show a run, and seldom enough for Google's requests of a day. */
const BOUNDS: Bounds = { deadlineMs: 1_000, lookMs: 1_000, looksMs: 3_000, failures: 1_000 };
/** Every look brings all cells of its request: smaller ones are looked at faster. */
const CALLS = 500;

let settings: Settings = { url: "", hasKey: false, model: undefined };
let changed = () => undefined as void;

const net = scriptNet(run, () => settings.url, (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  }));

const engine = new Engine({
  now: () => Date.now(),
  later: (milliseconds, then) => {
    const timer = setTimeout(then, milliseconds);
    return () => clearTimeout(timer);
  },
  ask: (calls, signal, onCell, onHeard) => {
    if (!settings.hasKey) throw new RequestError("sign in first: address and key stand above", 401, undefined, "no_server");
    return askCells(net, { url: settings.url, key: "", model: settings.model }, calls, signal, { onCell, onHeard }, BOUNDS);
  },
  // Every question costs one of Google's requests: a server that answered last time is there.
  probe: async () => !net.isLost() || probe(net, settings.url),
  progress: () => changed(),
}, { ...LIMITS, calls: CALLS });

const tool = (label: string, entry: string) => ({ label, run: () => run<string>("relserveTool", entry) });

const host: PaneHost = {
  dialect: DIALECT,
  usual: "values",
  readsFast: false,
  tools: [
    tool("Keep as values", "keepValues"), tool("Keep in their formulas", "keepInFormulas"), tool("Ask again", "askAgain"),
    tool("Fetch late answers", "fetchLate"),
  ],
  settings: async () => {
    settings = await run<Settings>("relserveSettings");
    return settings;
  },
  save: (url, key) => run("relserveSignIn", url, key),
  forget: () => run("relserveForget"),
  chooseModel: async (model) => {
    await run("relserveChooseModel", model ?? "");
    settings = { ...settings, model };
  },
  allowFormulas: (isAllowed) => run("relserveAllowFormulas", isAllowed),
  get: (path) => net.fetch(`${settings.url}${path}`).catch(() => {
    throw new RequestError(`${settings.url} cannot be reached from Google's servers`, 0, undefined);
  }),
  read: async () => (await run<SheetCells | null>("relserveRead")) ?? undefined,
  writeCell: (place, content) => run("relserveWriteCell", place, content),
  writeAnswers: (place, answers) => run("relserveWriteAnswers", place, answers),
};

changed = startPane(engine, host);
// Who closes the sidebar waits no more: what is called off frees the server, as far as the browser still lets it go out.
addEventListener("pagehide", () => engine.stop());
