// Menus that hang below their button: the browser opens, layers and closes them (`popover`), here are place and keys.

/** Space between a button and what hangs below it, and around the window's edge, in pixels. */
const GAP_PX = 4;

/** Puts a panel below what it belongs to, or above it where there is no room, as far as it fits into the window. */
export function hang(panel: HTMLElement, from: DOMRect): void {
  const { width, height } = panel.getBoundingClientRect();
  const below = from.bottom + GAP_PX;
  const above = from.top - GAP_PX - height;
  const top = below + height <= innerHeight || above < 0 ? below : above;
  panel.style.left = `${Math.max(GAP_PX, Math.min(from.left, innerWidth - width - GAP_PX))}px`;
  panel.style.top = `${Math.max(GAP_PX, Math.min(top, innerHeight - height - GAP_PX))}px`;
}

/** What can be pressed in a panel now. */
export function pressable(panel: HTMLElement): HTMLElement[] {
  const all = panel.querySelectorAll<HTMLElement>("button, select");
  return Array.from(all).filter((one) => !(one as HTMLButtonElement).disabled && one.checkVisibility());
}

/** Where an arrow key leads among so many; nothing for other keys. */
export function stepped(key: string, at: number, many: number, axis: "row" | "column" | "both"): number | undefined {
  const forward = (axis !== "row" && key === "ArrowDown") || (axis !== "column" && key === "ArrowRight");
  const back = (axis !== "row" && key === "ArrowUp") || (axis !== "column" && key === "ArrowLeft");
  if (key === "Home") return 0;
  if (key === "End") return many - 1;
  return forward ? (at + 1) % many : back ? (at - 1 + many) % many : undefined;
}

/** Gives a menu of the page its place and its keys. */
export function dropDown(button: HTMLButtonElement, menu: HTMLElement): void {
  for (const item of menu.querySelectorAll("button")) item.tabIndex = -1;
  button.setAttribute("aria-expanded", "false");
  menu.addEventListener("toggle", (event) => {
    const isOpen = event.newState === "open";
    button.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) return;
    hang(menu, button.getBoundingClientRect());
    pressable(menu)[0]?.focus();
  });
  button.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" || menu.matches(":popover-open")) return;
    event.preventDefault();
    menu.showPopover();
  });
  menu.addEventListener("keydown", (event) => {
    const items = pressable(menu);
    const at = items.indexOf(document.activeElement as HTMLElement);
    const to = stepped(event.key, at, items.length, "column");
    if (to !== undefined) items[to]?.focus();
    else if (event.key === "Tab") menu.hidePopover();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  // It closes first: what an item opens may want the keys.
  menu.addEventListener("click", () => menu.hidePopover(), true);
  // The grid takes a press beside it for the end of its selection.
  menu.addEventListener("mousedown", (event) => event.stopPropagation());
}
