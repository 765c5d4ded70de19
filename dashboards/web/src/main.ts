// Where the page starts.

import { CATALOGUE } from "relserve-client/catalogue";

import { signInByLink } from "./app/sign-in";
import { Workspace } from "./app/workspace";
import { FUNCTION_NAMES } from "./core/evaluate";
import { refuses } from "./core/models";
import { me } from "./net/people";
import { storesOf } from "./store/scope";
import { t } from "./text";
import { helpOf } from "./text/functions";
import { AdminView } from "./ui/admin";
import { AnsweringModel } from "./ui/answering";
import { element, fillList, onClick } from "./ui/dom";
import { speak } from "./ui/language";
import { LiveView } from "./ui/live";
import { Login } from "./ui/login";
import { ServerLine } from "./ui/server-line";
import { showShared } from "./ui/shared-view";
import "relserve-client/tokens.css";
import "./ui/base.css";
import "./ui/shell.css";
import "./ui/grid.css";
import "./ui/panels.css";

speak();
const answering = new AnsweringModel();
const help = element("functions", HTMLDialogElement);
onClick("help", () => {
  const told = (name: string) => {
    const { parameters, summary } = helpOf(name);
    const [item, call] = [CATALOGUE.get(name), `${name}(${parameters.join(", ")})`];
    return [item && refuses(answering.current, item.name) ? t.column.refused(call) : call, summary] as const;
  };
  fillList(element("functions-list", HTMLDListElement), [...CATALOGUE.keys()].map(told));
  const others = FUNCTION_NAMES.filter((name) => !CATALOGUE.has(name));
  fillList(element("functions-ordinary", HTMLDListElement), others.map(told));
  help.showModal();
});

const live = new LiveView(answering);
const admin = new AdminView();
const adminLink = element("view-admin", HTMLAnchorElement);
function view(): void {
  const shown = location.hash === "#live" ? "live" : location.hash === "#admin" && !adminLink.hidden ? "admin" : "sheet";
  document.body.dataset["view"] = shown;
  for (const name of ["sheet", "live", "admin"]) {
    element(name, HTMLElement).hidden = name !== shown;
    const link = element(`view-${name}`, HTMLAnchorElement);
    if (name === shown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  live.show(shown === "live");
  admin.show(shown === "admin");
}

/** Learns who is signed in; gives the stores of its sheets. */
async function signedIn(): Promise<ReturnType<typeof storesOf>> {
  const caller = await me().catch(() => undefined);
  element("tenant", HTMLSpanElement).textContent = caller ? `${caller.tenant}${caller.operator ? ` (${t.operator})` : ""}` : "";
  adminLink.hidden = !caller?.operator;
  view();
  return storesOf(caller?.workbooks);
}

async function start(): Promise<void> {
  let workspace: Workspace | undefined;
  // Another view; or a link that was opened over the page, which begins anew.
  addEventListener("hashchange", () => {
    if (/^#(sign-in|shared)=/.test(location.hash)) return location.reload();
    view();
    // The browser gives the keys to nobody; who comes back to the sheet goes on in it.
    if (document.body.dataset["view"] === "sheet") workspace?.focus();
  });
  let opened: string | undefined;
  const login = new Login(answering, () => void accepted());
  async function accepted(): Promise<void> {
    const stores = await signedIn();
    // Another tenant's sheets are in another store.
    if (opened !== undefined && stores.sheets !== opened) return location.reload();
    workspace?.retry();
    await workspace?.keep(stores);
  }
  /** The server answers again: it may be another one, with other models and keys, or one that was never asked who this is. */
  async function returned(): Promise<void> {
    const isKept = workspace?.synchronize() === true;
    if ((await login.start()) && !isKept) await accepted();
  }
  const server = new ServerLine({ away: () => void workspace?.synchronize(), back: () => void returned() });
  const isIn = await login.start(await signInByLink());
  const stores = isIn ? await signedIn() : storesOf(undefined);
  view();
  opened = stores.sheets;
  workspace = await Workspace.open(stores.sheets, answering, () => login.refused(), server);
  if (isIn) await workspace.keep(stores);
}

const SHARED = "#shared=";
if (location.hash.startsWith(SHARED)) void showShared(location.hash.slice(SHARED.length));
else void start();
