// Where the page starts.

import { CATALOGUE, signature } from "relserve-client/catalogue";

import { Workspace } from "./app/workspace";
import { element, fillList, onClick } from "./ui/dom";
import { LiveView } from "./ui/live";
import { Login } from "./ui/login";
import "./ui/style.css";

const help = element("functions", HTMLDialogElement);
fillList(
  element("functions-list", HTMLDListElement),
  [...CATALOGUE.values()].map((item) => [signature(item), item.summary] as const),
);
onClick("help", () => help.showModal());

const live = new LiveView();
function view(): void {
  const isLive = location.hash === "#live";
  for (const [name, on] of [["sheet", !isLive], ["live", isLive]] as const) {
    element(name, HTMLElement).hidden = !on;
    const link = element(`view-${name}`, HTMLAnchorElement);
    if (on) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  live.show(isLive);
}
addEventListener("hashchange", view);

async function start(): Promise<void> {
  let workspace: Workspace | undefined;
  const login = new Login(() => workspace?.retry());
  await login.start();
  view();
  workspace = await Workspace.open(() => login.refused());
}
void start();
