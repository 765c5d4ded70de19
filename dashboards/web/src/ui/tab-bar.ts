// The names of a workbook's sheets below the grid.

import { t } from "../text";
import { element } from "./dom";
import { make } from "./make";
import { Menu } from "./menu";

/** What it tells. */
export interface TabBarEvents {
  chosen(index: number): void;
  added(): void;
  renamed(index: number): void;
  removed(index: number): void;
}

type Command = "rename" | "delete";

/** The bar. */
export class TabBar {
  private readonly list = element("tabs", HTMLDivElement);
  private readonly panel = element("grid", HTMLDivElement);
  private readonly menu: Menu<Command>;
  private meant = 0;

  constructor(private readonly events: TabBarEvents) {
    element("add-tab", HTMLButtonElement).addEventListener("click", () => events.added());
    this.menu = new Menu<Command>(t.tabs.menu, () => [
      { command: "rename", label: t.tabs.rename, key: "F2" },
      { command: "delete", label: t.workbook.delete, key: "" },
    ], (command) => (command === "rename" ? events.renamed(this.meant) : events.removed(this.meant)), () => this.tab(this.meant)?.focus());
    this.list.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows names, and which sheet is in the grid. */
  show(names: readonly string[], at: number): void {
    const hadFocus = this.list.contains(document.activeElement);
    const isSame = names.length === this.list.children.length && names.every((name, index) => this.tab(index)?.textContent === name);
    // The second click of a double click needs the tab that had the first.
    if (!isSame) this.list.replaceChildren(...names.map((name, index) => this.made(name, index)));
    for (const [index, tab] of Array.from(this.list.children).entries()) {
      tab.setAttribute("aria-selected", String(index === at));
      tab.setAttribute("tabindex", index === at ? "0" : "-1");
    }
    this.panel.setAttribute("aria-labelledby", `tab-${at}`);
    if (hadFocus) this.tab(at)?.focus();
  }

  private tab(index: number): HTMLElement | undefined {
    return this.list.children[index] as HTMLElement | undefined;
  }

  private made(name: string, index: number): HTMLElement {
    const tab = make("button", {
      type: "button", role: "tab", id: `tab-${index}`, "aria-controls": "grid",
      title: t.tabs.hint,
    }, name);
    tab.addEventListener("click", () => this.events.chosen(index));
    tab.addEventListener("dblclick", () => this.events.renamed(index));
    tab.addEventListener("contextmenu", (event) => {
      event.preventDefault();
      this.meant = index;
      const { left, top } = tab.getBoundingClientRect();
      this.menu.open(event.clientX || left, event.clientY || top);
    });
    return tab;
  }

  private key(event: KeyboardEvent): void {
    const tabs = Array.from(this.list.children);
    const at = tabs.indexOf(document.activeElement as Element);
    if (at < 0) return;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to !== undefined) this.tab((to + tabs.length) % tabs.length)?.focus();
    else if (event.key === "F2") this.events.renamed(at);
    else if (event.key === "Delete") this.events.removed(at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
