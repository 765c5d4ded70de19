// What a session has of the world: clock and network, without a screen.

import { serialOfInstant } from "../core/dates";
import { probe, runCells } from "../net/cells";
import { storedKey } from "../store/key";
import type { SessionHost } from "./session";

/** Waits until the sheet's view is shown: a question about its cells makes no sense over another. */
export function sheetShown(): Promise<void> {
  const isShown = () => document.body.dataset.view === "sheet";
  if (isShown()) return Promise.resolve();
  return new Promise((resolve) => {
    const observer = new MutationObserver(() => {
      if (!isShown()) return;
      observer.disconnect();
      resolve();
    });
    observer.observe(document.body, { attributeFilter: ["data-view"] });
  });
}

/** The world of the sessions of a page. */
export function worldOf(page: Pick<SessionHost, "allow" | "unauthorized"> & { model(): string | undefined; heard(): void }): SessionHost {
  return {
    now: () => performance.now(),
    clock: () => serialOfInstant(new Date()),
    model: () => page.model(),
    later: (milliseconds, then) => {
      const timer = setTimeout(then, milliseconds);
      return () => clearTimeout(timer);
    },
    run: (calls, signal, onCell, onHeard, labels, isFresh) =>
      runCells(calls, storedKey(), signal, onCell, () => {
        page.heard();
        onHeard();
      }, labels, isFresh),
    probe,
    allow: (calls) => page.allow(calls),
    paint: () => undefined,
    progress: () => undefined,
    unauthorized: () => page.unauthorized(),
  };
}
