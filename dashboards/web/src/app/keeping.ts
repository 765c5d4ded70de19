// Has the server keep what this browser has: when both sides are brought together, and what is said of it.

import { noUsage } from "relserve-client/usage";

import { workbooksOf } from "../net/workbooks";
import type { Stores } from "../store/scope";
import { SHEETS_MAX, type SheetStore, type StoredSheet, identifier } from "../store/sheets";
import { openMarks } from "../store/sync-marks";
import { t } from "../text";
import { element } from "../ui/dom";
import type { ServerLine } from "../ui/server-line";
import { type SyncEvents, WorkbookSync } from "./workbook-sync";

/** Other machines are looked for this often, in milliseconds, while the page is seen. */
const LOOK_MS = 5_000;
/** Held by the tab of this browser that asks the server. */
const LOCK = "relserve-sync";

/** One tab at a time; where the browser has no locks (plain HTTP to another machine) equal contents settle it. */
async function alone(run: () => Promise<void>): Promise<void> {
  const locks = (navigator as { locks?: LockManager }).locks;
  await (locks ? locks.request(LOCK, run) : run());
}

/** The line that says where sheets are kept. */
function showState(problem: string, isBehind: boolean): void {
  const line = element("kept", HTMLOutputElement);
  const words = problem ? (isBehind ? t.workbook.keptHere : t.workbook.keptBefore)(problem) : t.workbook.keptOnServer;
  if (line.value !== words) line.value = line.title = words;
  line.classList.toggle("bad", problem !== "");
  document.body.dataset.kept = problem ? "no" : "yes";
}

/** The keeping of one page. */
export class Keeping {
  private readonly sync: WorkbookSync;
  /** Whether something was written since the server last had all. */
  private isBehind = true;

  private constructor(
    store: SheetStore, marks: Awaited<ReturnType<typeof openMarks>>, scope: string | undefined, events: Omit<SyncEvents, "state">,
    private readonly server: ServerLine,
  ) {
    const state = (problem: string) => this.settled(problem);
    this.sync = new WorkbookSync(workbooksOf(scope), store, marks, { ...events, state }, {
      now: () => Date.now(), identifier, noUsage, alone, sheetsMax: SHEETS_MAX,
    });
    // While the server does not answer, its line asks.
    setInterval(() => !document.hidden && !server.isAway && void this.sync.look(), LOOK_MS);
    document.addEventListener("visibilitychange", () => !document.hidden && void this.sync.look());
    addEventListener("online", () => this.soon());
    this.soon();
  }

  /** Begins to keep the sheets of a store on the server, as those of the tenant whose they are. */
  static async open(store: SheetStore, { marks, scope }: Stores, events: Omit<SyncEvents, "state">, server: ServerLine): Promise<Keeping> {
    return new Keeping(store, await openMarks(marks), scope, events, server);
  }

  /** Brings both sides together, though nothing was written: the server went or came. */
  again(): void {
    void this.sync.run();
  }

  /** Something was written or deleted. */
  soon(): void {
    document.body.dataset.kept = "no";
    this.isBehind = true;
    this.server.keeps("behind");
    void this.sync.run();
  }

  private settled(problem: string): void {
    this.isBehind &&= problem !== "";
    this.server.keeps(this.isBehind ? "behind" : "saved");
    showState(problem, this.isBehind);
  }

  /** Answers came to a sheet. */
  answered(id: string): void {
    this.sync.answered(id);
    this.soon();
  }

  /** Has the server keep a sheet as it is now, whatever is saved next; throws where that failed. */
  async closeVersion(id: string): Promise<void> {
    await this.sync.closeVersion(id);
  }

  /** Has the server keep a sheet as it is in the store; gives whether there is anything to keep, and throws where that failed. */
  async keep(id: string): Promise<boolean> {
    return this.sync.keep(id);
  }

  /** The page goes, and the browser may not have taken what was typed last. */
  leave(sheet: StoredSheet): void {
    // Nobody is there any more to be told.
    void this.sync.flush(sheet).catch(() => undefined);
  }
}
