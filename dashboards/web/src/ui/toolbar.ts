// The row of tools: one stop for Tab and arrow keys within, as toolbars have it; and what finds no room hangs below "More".

import { element } from "./dom";
import { hang, pressable, stepped } from "./drop-down";

/** The row. */
export class Toolbar {
  private readonly bar = element("toolbar", HTMLDivElement);
  private readonly more = element("more", HTMLButtonElement);
  private readonly panel = element("more-tools", HTMLDivElement);
  /** Groups that may leave the row, the first to leave first, each with what it stands before in the row. */
  private readonly leaving: { group: HTMLElement; next: Element | null }[];

  /** The group that never leaves. */
  private readonly last = element("add-column", HTMLButtonElement).parentElement as HTMLElement;

  /** `pressed` is told of a press before it does anything. */
  constructor(pressed: () => void) {
    const groups = Array.from(this.bar.querySelectorAll<HTMLElement>("[data-leaves]"));
    this.leaving = groups.map((group) => ({ group, next: group.nextElementSibling }))
      .sort((a, b) => Number(a.group.dataset["leaves"]) - Number(b.group.dataset["leaves"]));
    const observer = new ResizeObserver(() => this.fit());
    // A group grows where filters say how many rows they show, and in another language.
    for (const part of [this.bar, this.last, ...groups]) observer.observe(part);
    this.bar.addEventListener("keydown", (event) => this.key(event));
    // The stop for Tab may be taken out of use.
    new MutationObserver(() => this.rove()).observe(this.bar, { subtree: true, attributeFilter: ["disabled"] });
    this.bar.addEventListener("focusin", (event) => this.rove(event.target as HTMLElement));
    this.bar.addEventListener("mousedown", (event) => {
      // The grid would take the press for the end of its selection, and the keys would leave it.
      event.stopPropagation();
      if ((event.target as Element).closest("select")) return;
      event.preventDefault();
      pressed();
    });
    this.panel.addEventListener("toggle", (event) => {
      if (event.newState !== "open") return this.fit();
      hang(this.panel, this.more.getBoundingClientRect());
      pressable(this.panel)[0]?.focus();
    });
    // After what was pressed, which may hang a menu below its button.
    this.panel.addEventListener("click", (event) => (event.target as Element).closest("button") && this.panel.hidePopover());
    this.panel.addEventListener("change", () => this.panel.hidePopover());
    this.fit();
  }

  /** Lets groups leave the row, one after the other, until the rest has room. */
  private fit(): void {
    // What is moved loses the keys.
    if (this.panel.matches(":popover-open")) return;
    for (const { group, next } of this.leaving.toReversed()) if (group.parentElement === this.panel) this.bar.insertBefore(group, this.home(next));
    this.bar.classList.remove("tight", "brief", "briefest");
    // A button that is hidden while it is measured without would lose the keys.
    this.more.hidden = false;
    this.bar.scrollLeft = 0;
    // Names go before tools do.
    for (const less of ["brief", "briefest"]) this.bar.classList.toggle(less, this.isTight(false));
    let hasLeft = false;
    for (const { group } of this.leaving) {
      if (!this.isTight(hasLeft)) break;
      hasLeft = true;
      this.panel.prepend(group);
    }
    this.bar.classList.toggle("tight", this.isTight(hasLeft));
    this.more.hidden = !hasLeft;
    this.rove();
  }

  /** Whether the groups reach beyond the row, or into the place of "More". */
  private isTight(hasMore: boolean): boolean {
    const ends = this.leaving.map(({ group }) => group).concat(this.last).filter((group) => group.parentElement === this.bar)
      .map((group) => group.getBoundingClientRect().right);
    const edge = this.bar.getBoundingClientRect().right - Number.parseFloat(getComputedStyle(this.bar).paddingRight);
    return Math.max(...ends) > edge - (hasMore ? this.more.offsetWidth : 0);
  }

  /** What a group stands before: its neighbour, or the next that is in the row. */
  private home(next: Element | null): Element | null {
    let at = next;
    while (at && at.parentElement !== this.bar) at = this.leaving.find(({ group }) => group === at)?.next ?? null;
    return at;
  }

  private key(event: KeyboardEvent): void {
    // An open list has the keys for itself.
    if (event.target instanceof HTMLOptionElement) return;
    const isBelow = this.panel.contains(event.target as Node);
    const items = pressable(isBelow ? this.panel : this.bar).filter((item) => isBelow || !this.panel.contains(item));
    // In the row the keys up and down are those of a list.
    const to = stepped(event.key, items.indexOf(event.target as HTMLElement), items.length, isBelow ? "both" : "row");
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    items[to]?.focus();
  }

  /** Leaves one of them to Tab: the one that has or had the keys, or the first. */
  private rove(to?: HTMLElement): void {
    const items = pressable(this.bar);
    const stop = (to && items.includes(to) ? to : items.find((item) => item.tabIndex === 0)) ?? items[0];
    for (const item of this.bar.querySelectorAll<HTMLElement>("button, select")) item.tabIndex = item === stop || this.panel.contains(item) ? 0 : -1;
  }
}
