// What the menu of rows and columns does to the open sheet: which of them are meant, one step of the history, and
// words about it. The changes themselves are made in `core/arrange` and `core/sort`.

import { ROWS_MAX, columnName } from "../core/address";
import { type Edit, Refusal, type Step, followElsewhere, rearrange, widthsAfter } from "../core/arrange";
import type { Book } from "../core/book";
import { keepValues } from "../core/keep";
import type { Sheet } from "../core/sheet";
import { layoutAfter } from "../core/layout";
import { type Origins, afterEdit, afterKeeping, afterSort, followed } from "../core/origins";
import { placesOf, sortRows } from "../core/sort";
import { t } from "../text";
import { type Grid, type Source, WIDTH } from "../ui/grid";
import type { StepElsewhere } from "../ui/history";
import type { Entry } from "../ui/menu";

/** The commands. */
export type Command =
  | "insert-rows" | "delete-rows" | "insert-columns" | "delete-columns" | "sort-ascending" | "sort-descending"
  | "keep-values";

/** Rows and columns of the open sheet. */
export class Arranger {
  constructor(
    private readonly grid: Grid, private readonly open: () => { book: Book; sheet: Sheet } | undefined,
    /** Those of the open sheet, or of the one of a name. */
    private readonly origins: (sheet?: string) => Origins,
    private readonly say: (words: string) => void,
  ) {}

  /** The menu for what is selected. */
  entries(): Entry<Command>[] {
    const { rows, columns, column } = this.grid.selection();
    const whole = this.whole();
    const name = columnName(column);
    // Of whole columns all rows are selected, and nobody means those.
    const row = whole === "column" ? 1 : rows;
    const wide = whole === "row" ? 1 : columns;
    const key = (axis: Edit["axis"], sign: string) => (whole === axis ? t.control(sign) : "");
    return [
      { command: "sort-ascending", label: t.arrange.ascending(name), key: "" },
      { command: "sort-descending", label: t.arrange.descending(name), key: "" },
      { command: "insert-rows", label: t.arrange.insertRows(row), key: key("row", "+"), begins: true },
      { command: "delete-rows", label: t.arrange.deleteRows(row), key: key("row", "−") },
      { command: "insert-columns", label: t.arrange.insertColumns(wide), key: key("column", "+") },
      { command: "delete-columns", label: t.arrange.deleteColumns(wide), key: key("column", "−") },
      { command: "keep-values", label: t.arrange.keepValues, key: "", begins: true },
    ];
  }

  /** The keys of every spreadsheet; false where they mean something else. */
  key(event: KeyboardEvent): boolean {
    if (!this.grid.hasKeys || this.grid.isEditing || event.altKey) return false;
    const isControl = event.ctrlKey || event.metaKey;
    if (event.key === " " && (event.shiftKey || isControl)) {
      this.extend(event.shiftKey, isControl);
      return true;
    }
    // Without whole rows or columns selected these keys stay the browser's, which zooms with them.
    const axis = this.whole();
    if (!isControl || !axis || !["+", "=", "-", "_"].includes(event.key)) return false;
    this.edit(event.key === "-" || event.key === "_" ? "delete" : "insert", axis);
    return true;
  }

  /** Does a command, or says why not. */
  run(command: Command): void {
    const [verb, what] = command.split("-") as [string, string];
    if (verb === "sort") this.sort(what === "descending");
    else if (verb === "keep") this.keep();
    else this.edit(verb as Edit["kind"], what === "rows" ? "row" : "column");
  }

  /** Whether whole rows or whole columns are selected; of a whole sheet, its rows. */
  private whole(): Edit["axis"] | undefined {
    const [area, size] = [this.grid.selection(), this.grid.size()];
    return area.columns >= size.columns ? "row" : area.rows >= size.rows ? "column" : undefined;
  }

  private extend(toRows: boolean, toColumns: boolean): void {
    const [area, size] = [this.grid.selection(), this.grid.size()];
    this.grid.selectArea({
      ...area, ...(toRows ? { column: 0, columns: size.columns } : {}), ...(toColumns ? { row: 0, rows: size.rows } : {}),
    });
  }

  private edit(kind: Edit["kind"], axis: Edit["axis"]): void {
    this.grid.finishEdit();
    const area = this.area(axis);
    const at = axis === "row" ? area.row : area.column;
    const count = axis === "row" ? area.rows : area.columns;
    const hidden = axis === "row" ? Array.from({ length: count }, (_, i) => at + i).filter((row) => this.grid.isHidden(row)).length : 0;
    if (kind === "delete" && hidden > 0) {
      return this.say(t.arrange.refused(t.failure.hiddenRows(hidden)));
    }
    const edit: Edit = { kind, axis, at, count };
    const done = this.attempt(
      (sheet, name) => [rearrange(sheet.typed(), edit, name), afterEdit(this.origins(), edit, name)], edit,
    );
    if (!done) return;
    this.say(axis === "row" ? rowsWords(kind, at, count) : columnsWords(kind, at, count));
  }

  /** Whole columns hold every row, but a command for rows then means the first one; and the other way round. */
  private area(axis: Edit["axis"]): Source {
    const area = this.grid.selection();
    const whole = this.whole();
    if (axis === "row" && whole === "column") return { ...area, rows: 1 };
    if (axis === "column" && whole === "row") return { ...area, columns: 1 };
    return area;
  }

  /** Several rows: those. Else all that are used, without the first row if it is selected: it is the header. */
  private sort(isDescending: boolean): void {
    this.grid.finishEdit();
    const { row, rows, column } = this.grid.selection();
    const isSome = rows > 1 && rows < this.grid.size().rows;
    const hasHeader = !isSome && row === 0;
    const first = isSome ? row : hasHeader ? 1 : 0;
    const last = isSome ? row + rows - 1 : ROWS_MAX - 1;
    const order = { row: first, rowEnd: last, column, isDescending };
    const done = this.attempt((sheet) => {
      const places = placesOf(sheet, order);
      return [sortRows(sheet, order, places), afterSort(this.origins(), places)];
    }, undefined);
    if (!done) return;
    const [name, direction] = [columnName(column), isDescending ? t.arrange.downwards : t.arrange.upwards];
    if (isSome) this.say(t.arrange.sortedRows(first + 1, last + 1, name, direction));
    else this.say((hasHeader ? t.arrange.sortedBelow : t.arrange.sortedAll)(name, direction));
  }

  /** Formulas of the selection, and those that fill it, give way to their values. */
  private keep(): void {
    this.grid.finishEdit();
    const { row, column, rows, columns } = this.grid.selection();
    const area = { row, column, rowEnd: row + rows - 1, columnEnd: column + columns - 1 };
    const done = this.attempt((sheet) => {
      const steps = keepValues(sheet, area);
      return [steps, afterKeeping(sheet, this.origins(), steps)];
    }, undefined);
    if (done) this.say(t.arrange.kept);
  }

  private attempt(
    change: (sheet: Sheet, name: string | undefined) => [Step[], Origins], edit: Edit | undefined,
  ): boolean {
    const open = this.open();
    if (!open) return false;
    const { book, sheet } = open;
    try {
      const [widths, layout] = [this.grid.widths(), this.grid.layout];
      const name = book.members.find((member) => member.sheet === sheet)?.name;
      const [before, [steps, origins]] = [this.origins(), change(sheet, name)];
      const after = edit ? widthsAfter(widths, edit, WIDTH) : widths;
      const looks = edit ? layoutAfter(layout, edit) : layout;
      const isSame = steps.length === 0 && after.every((width, column) => width === widths[column]) &&
        JSON.stringify(looks) === JSON.stringify(layout);
      const elsewhere = edit && name !== undefined ? this.elsewhere(book, sheet, edit, name) : [];
      // A step that changes nothing would be an undo that does nothing.
      if (!isSame || elsewhere.length > 0) this.grid.step(steps, after, looks, elsewhere, { before, after: origins });
      return true;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.say(t.arrange.refused(error.message));
      return false;
    }
  }

  /** What other sheets read of the one that is edited. */
  private elsewhere(book: Book, sheet: Sheet, edit: Edit, name: string): StepElsewhere[] {
    return book.members.filter((member) => member.sheet !== sheet)
      .map((member) => {
        const before = this.origins(member.name);
        const origins = { before, after: followed(before, edit, name) };
        return { sheet: member.name, cells: followElsewhere(member.sheet.typed(), edit, name), origins };
      })
      .filter(({ cells, origins }) => cells.length > 0 || origins.after !== origins.before);
  }
}

/** What was done to rows. */
function rowsWords(kind: Edit["kind"], at: number, count: number): string {
  if (kind === "insert") return t.arrange.insertedRows(count, at + 1);
  return count === 1 ? t.arrange.deletedRow(at + 1) : t.arrange.deletedRows(at + 1, at + count);
}

/** What was done to columns. */
function columnsWords(kind: Edit["kind"], at: number, count: number): string {
  const [first, last] = [columnName(at), columnName(at + count - 1)];
  if (kind === "insert") return t.arrange.insertedColumns(count, first);
  return count === 1 ? t.arrange.deletedColumn(first) : t.arrange.deletedColumns(first, last);
}
