// Cells that are asked again: those that are selected, those that failed, and those whose cells have changed since.

import type { Area } from "../core/address";
import { type Origins, askChanged } from "../core/origins";
import type { Grid } from "../ui/grid";
import { count } from "../ui/make";
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
      { command: "inspect", label: "Inspect this cell", key: "Ctrl I" },
      { command: "ask-selected", label: rows * columns === 1 ? "Ask again: this cell" : "Ask again: selected cells", key: "", begins: true },
      { command: "ask-failed", label: "Ask again: what failed", key: "" },
      { command: "ask-changed", label: "Ask again: what changed", key: "" },
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
    if (asked === 0) this.host.say("Nothing is asked: no AI formula's answer stands there that could be asked for again.");
    else this.host.say(`Asked the model again: ${count(asked)} ${asked === 1 ? "call" : "calls"}, past the server's result cache.`);
  }

  private changed(): void {
    const session = this.host.session();
    if (!session) return;
    const changes = askChanged(session.sheet, this.host.origins());
    if (changes.length === 0) {
      this.host.say("Nothing is asked: no edited or kept value stands on cells that have changed since.");
      return;
    }
    this.host.grid.type(changes);
    const which = changes.length === 1 ? "1 value that stood on changed cells is" : `${count(changes.length)} values that stood on changed cells are`;
    this.host.say(`${which} asked again; Ctrl+Z brings what stood there back.`);
  }
}
