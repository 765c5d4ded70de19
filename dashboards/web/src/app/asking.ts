// Cells that are asked again: those that are selected, those that failed, and those whose cells have changed since.

import type { Area } from "../core/address";
import { type Origins, askChanged } from "../core/origins";
import { t } from "../text";
import type { Grid } from "../ui/grid";
import type { Entry } from "../ui/menu";
import type { Session } from "./session";

/** The commands of the cell's menu that are about answers. */
export type AskCommand = "inspect" | "ask-selected" | "ask-failed" | "ask-changed";

/** What it needs of the page. */
export interface AskingHost {
  grid: Grid;
  session(): Session | undefined;
  origins(): Origins;
  inspect(): void;
  say(words: string): void;
}

/** Asks again. */
export class Asking {
  constructor(private readonly host: AskingHost) {}

  /** The menu for what is selected. */
  entries(): Entry<AskCommand>[] {
    const { rows, columns } = this.host.grid.selection();
    return [
      { command: "inspect", label: t.asking.inspect, key: t.control("I"), begins: true },
      { command: "ask-selected", label: rows * columns === 1 ? t.asking.thisCell : t.asking.selected, key: "", begins: true },
      { command: "ask-failed", label: t.asking.failed, key: "" },
      { command: "ask-changed", label: t.asking.changed, key: "" },
    ];
  }

  /** Does a command, and says what came of it. */
  run(command: AskCommand): void {
    this.host.grid.finishEdit();
    if (command === "inspect") this.host.inspect();
    else if (command === "ask-selected") this.selected();
    else if (command === "ask-failed") this.host.session()?.retry();
    else this.changed();
  }

  private selected(): void {
    const { row, column, rows, columns } = this.host.grid.selection();
    this.ask({ row, column, rowEnd: row + rows - 1, columnEnd: column + columns - 1 });
  }

  /** Asks for the answers of an area that are seen, past the server's result cache: what a filter hides is not meant. */
  ask(area: Area): void {
    const asked = this.host.session()?.again(area, (row) => this.host.grid.isHidden(row)) ?? 0;
    if (asked === 0) this.host.say(t.asking.noAnswer);
    else this.host.say(t.asking.asked(asked));
  }

  private changed(): void {
    const session = this.host.session();
    if (!session) return;
    const changes = askChanged(session.sheet, this.host.origins());
    if (changes.length === 0) {
      this.host.say(t.asking.noChange);
      return;
    }
    this.host.grid.type(changes);
    this.host.say(t.asking.askedChanged(changes.length));
  }
}
