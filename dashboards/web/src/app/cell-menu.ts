// The menu of cells, rows and columns: by the button, by a right click, and by the menu key.

import { t } from "../text";
import { element } from "../ui/dom";
import type { Grid } from "../ui/grid";
import { Menu } from "../ui/menu";
import type { Arranger, Command } from "./arranger";
import type { AskCommand, Asking } from "./asking";

/** Hangs the menu on the grid and on its button. */
export function cellMenu(grid: Grid, arranger: Arranger, asking: Asking): void {
  const menu = new Menu<{ of: "answers"; what: AskCommand } | { of: "rows"; what: Command }>(
    t.workbook.menu,
    () => [
      ...arranger.entries().map((entry) => ({ ...entry, command: { of: "rows" as const, what: entry.command } })),
      ...asking.entries().map((entry) => ({ ...entry, command: { of: "answers" as const, what: entry.command } })),
    ],
    (command) => (command.of === "answers" ? asking.run(command.what) : arranger.run(command.what)),
    () => grid.focus(),
  );
  const button = element("arrange", HTMLButtonElement);
  button.addEventListener("click", () => {
    grid.finishEdit();
    const { left, bottom } = button.getBoundingClientRect();
    menu.open(left, bottom);
  });
  // On the window, and so after the grid, which selects what is clicked at.
  addEventListener("contextmenu", (event) => {
    const host = element("grid", HTMLDivElement);
    if (!host.contains(event.target as Node) || grid.isEditing) return;
    event.preventDefault();
    const corner = grid.corner();
    if ((event.target as Element).closest("td") || !corner) menu.open(event.clientX, event.clientY);
    else menu.open(corner.left, corner.bottom);
  });
}
