// A menu that opens at a place: a list of commands for mouse, keys and screen readers.

import { make } from "./make";

/** A command of a menu. */
export interface Entry<Command> {
  command: Command;
  label: string;
  /** The keys that do the same, where some do. */
  key: string;
  /** Whether a group of commands begins with it. */
  begins?: boolean;
}

/** The menu; one is open at most. */
export class Menu<Command> {
  private readonly list: HTMLElement;

  constructor(
    name: string, private readonly entries: () => Entry<Command>[], private readonly chosen: (command: Command) => void,
    private readonly closed: () => void,
  ) {
    this.list = make("div", { role: "menu", "aria-label": name, class: "menu", hidden: "" });
    document.body.append(this.list);
    // The grid takes a press beside it for the end of its selection.
    this.list.addEventListener("mousedown", (event) => event.stopPropagation());
    this.list.addEventListener("contextmenu", (event) => event.preventDefault());
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("focusout", (event) => {
      if (!this.list.contains(event.relatedTarget as Node | null)) this.list.hidden = true;
    });
  }

  /** Opens at a place of the window, as far as it fits. */
  open(x: number, y: number): void {
    this.list.replaceChildren(...this.entries().map((entry) => this.item(entry)));
    this.list.hidden = false;
    const { width, height } = this.list.getBoundingClientRect();
    this.list.style.left = `${Math.max(0, Math.min(x, innerWidth - width))}px`;
    this.list.style.top = `${Math.max(0, Math.min(y, innerHeight - height))}px`;
    this.focus(0);
  }

  private item({ command, label, key, begins }: Entry<Command>): HTMLButtonElement {
    const made = make("button", { type: "button", role: "menuitem", tabindex: "-1" }, make("span", {}, label));
    if (begins) made.classList.add("begins");
    if (key) made.append(make("kbd", {}, key));
    made.addEventListener("click", () => {
      this.close();
      this.chosen(command);
    });
    return made;
  }

  private close(): void {
    this.list.hidden = true;
    this.closed();
  }

  private focus(index: number): void {
    const items = this.list.children;
    (items[(index + items.length) % items.length] as HTMLElement | undefined)?.focus();
  }

  private key(event: KeyboardEvent): void {
    const at = Array.from(this.list.children).indexOf(document.activeElement as Element);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (to !== undefined) this.focus(to);
    else if (event.key === "Escape" || event.key === "Tab") this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
