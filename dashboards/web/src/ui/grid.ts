// The grid on the screen: jspreadsheet draws, selects, edits and keeps the history of what was typed; values
// come from the sheet. Its own formulas are off. After every event the two are compared cell by cell, so no way
// of changing a cell (keys, paste, fill, undo) can be forgotten.

import jspreadsheet from "jspreadsheet-ce";
import { CellError, PENDING } from "relserve-client/value";
import { t } from "../text";
import "jsuites/dist/jsuites.css";
import "jspreadsheet-ce/dist/jspreadsheet.css";

import { COLUMNS_MAX, type CellId, ROWS_MAX, cellId, cellName, columnOfId, nameOf, rowOf } from "../core/address";
import type { Step } from "../core/arrange";
import { hiddenRows, textAt } from "../core/filter";
import { type Layout, PLAIN, formatAt } from "../core/layout";
import type { Origins } from "../core/origins";
import type { Change, Sheet } from "../core/sheet";
import { shift } from "../core/shift";
import { CellPainter } from "./cell-painter";
import { Clipboard, clipboardText } from "./clipboard";
import { keepFormulas, moveFormulas, mendFormulas } from "./corrections";
import { Frozen } from "./frozen";
import { type Arranged, type StepElsewhere, addStep, applyStep, changesWidths, setWidths, silently, trim } from "./history";
import { RowWindow } from "./row-window";
import { keepEditing } from "./scrolling";
import { type Source, source } from "./selection";
import { chooseWidth, fitEmpty, keptWidth, screenWidth, showWidths, shownWidth } from "./shown-widths";

type Worksheet = jspreadsheet.WorksheetInstance;

/** What the grid tells. */
export interface GridEvents {
  /** Cells were typed into, or changed by a step that moved them. */
  changed(changes: Change[], isStep: boolean): void;
  /** Another cell is selected. */
  selected(row: number, column: number): void;
  /** Widths or sizes changed, or cells moved, with the origins that stand now where that changed them. */
  arranged(origins?: Origins): void;
  /** A cell is being typed in, and has this text so far. */
  typing(text: string): void;
  /** It is typed in no more. */
  typed(): void;
  /** A CSV was pasted as a table of so many rows and columns; `asLines` puts its lines there instead. */
  pastedCsv(rows: number, columns: number, asLines: () => void): void;
  /** A step was undone, or done again. */
  walked(isForward: boolean): void;
  /** The sheet looks different: formats, filters, what is frozen, charts. */
  laidOut(layout: Layout): void;
  /** A step changes cells of another sheet along. */
  elsewhere(steps: readonly StepElsewhere[], isForward: boolean): void;
}

/** Empty rows and columns to type into. */
const SPARE_ROWS = 20;
const LEAST_ROWS = 100;
const LEAST_COLUMNS = 10;
const SPARE_COLUMNS = 2;
/** A column that nobody has made wider or narrower. */
export const WIDTH = 130;
export type { Source } from "./selection";

/** The grid. */
export class Grid {
  private worksheet: Worksheet | undefined;
  private painter: CellPainter | undefined;
  private window: RowWindow | undefined;
  /** Cells outside of the page that have changed: few of a large sheet are ever looked at. */
  private readonly unpainted = new Set<CellId>();
  private frozen: Frozen | undefined;
  private sheet: Sheet | undefined;
  private looks: Layout = PLAIN;
  private hidden: ReadonlySet<number> = new Set();
  private readonly clipboard = new Clipboard({
    value: (row, column) => this.sheet?.value(row, column) ?? null, typed: (row, column) => this.typedAt(row, column),
  });
  /** The source of a fill by the handle that is under way. */
  private moving: Source | undefined;
  private at: [number, number] = [0, 0];
  /** The area that was selected last: a click beside the grid takes the grid's own mark away. */
  private last: Source = { row: 0, column: 0, rows: 1, columns: 1 };

  constructor(private readonly host: HTMLDivElement, private readonly events: GridEvents) {
    host.addEventListener("mousedown", (event) => this.startFill(event), true);
    host.addEventListener("input", ({ target }) => {
      if (this.isEditing && target instanceof HTMLInputElement) this.events.typing(target.value);
    });
    new ResizeObserver(() => this.fit()).observe(host);
    // Before the grid, which listens to the whole document: a key pasted into the login dialog is no cell.
    for (const name of ["keydown", "paste", "copy", "cut"]) {
      addEventListener(name, () => {
        if (this.isElsewhere()) jspreadsheet.current = null;
      }, true);
    }
    addEventListener("paste", (event) => this.onPasteEvent(event), true);
    // What keys do, they do at the selected cell; the grid does not find one that was scrolled away.
    addEventListener("keydown", (event) => {
      const isCommand = event.ctrlKey || event.metaKey || ["Control", "Shift", "Alt", "Meta"].includes(event.key);
      if (this.hasKeys && !this.isEditing && !isCommand) this.window?.reveal(this.at[0]);
    }, true);
  }

  /** Shows a sheet from its beginning, with an empty history. */
  open(rows: string[][], widths: number[], sheet: Sheet, layout: Layout): void {
    this.close();
    this.sheet = sheet;
    this.looks = layout;
    const used = sheet.extent();
    const count = Math.min(ROWS_MAX, Math.max(LEAST_ROWS, Math.max(rows.length, used.rows) + SPARE_ROWS));
    const widest = rows.reduce((most, row) => Math.max(most, row.length), 0);
    const columns = Math.min(COLUMNS_MAX, Math.max(LEAST_COLUMNS, Math.max(widest, used.columns) + SPARE_COLUMNS));
    const data = Array.from({ length: count }, (_, y) => Array.from({ length: columns }, (_, x) => rows[y]?.[x] ?? ""));
    const holder = document.createElement("div");
    this.host.replaceChildren(holder);
    const [worksheet] = jspreadsheet(holder, {
      parseFormulas: false,
      autoIncrement: false,
      about: false,
      tabs: false,
      toolbar: false,
      // Only `false` keeps the menu of the grid away; its type knows `null`, which shows it.
      contextMenu: () => false as unknown as null,
      onafterchanges: () => this.afterChanges(),
      onundo: (_, record) => this.walk(record, false),
      onredo: (_, record) => this.walk(record, true),
      oninsertrow: () => this.sync(),
      onselection: (_, x1, y1, x2, y2) => this.onSelection(x1, y1, x2, y2),
      oneditionend: (_, __, x, y) => queueMicrotask(() => {
        this.paintCell(Number(y), Number(x));
        this.events.typed();
      }),
      onresizecolumn: (_, column) => {
        // A step that moves columns sets widths too; that is nobody's choice.
        if (this.worksheet && !this.worksheet.ignoreHistory) chooseWidth(this.worksheet, Number(column));
        this.showWidths();
        this.paintAll();
        this.events.arranged();
      },
      oncopy: (_, area, __, cut) => this.clipboard.copy(area, cut ?? false),
      // Its type knows no rows, but rows are what is taken.
      onbeforepaste: (_, pasted, x, y) => this.onPaste(pasted, Number(y), Number(x)) as unknown as undefined,
      oncreatecell: (_, cell) => cell.setAttribute("role", "gridcell"),
      worksheets: [{
        data,
        columns: Array.from({ length: columns }, (_, x) => this.column(widths[x] ?? WIDTH)),
        tableOverflow: true,
        tableHeight: `${this.host.clientHeight}px`,
        tableWidth: `${this.host.clientWidth}px`,
        lazyLoading: true,
        // Rows and columns come and go by `step`, with the references that have to move.
        allowDeleteRow: false,
        allowDeleteColumn: false,
        allowRenameColumn: false,
        allowInsertColumn: true,
        allowManualInsertColumn: false,
        columnSorting: false,
        columnDrag: false,
        rowDrag: false,
        rowResize: false,
        allowComments: false,
      }],
    });
    if (!worksheet) throw new Error("the grid could not be made");
    this.worksheet = worksheet;
    this.painter = new CellPainter(worksheet.records[0]?.[0]?.element ?? worksheet.table);
    this.window = new RowWindow(worksheet, (rows) => this.paintRows(rows));
    this.frozen = new Frozen(worksheet, this.window);
    keepEditing(worksheet, () => this.finishEdit());
    // The grid names the place of its tabs, which are off, in English.
    for (const named of holder.querySelectorAll("[aria-label]")) named.removeAttribute("aria-label");
    worksheet.table.setAttribute("role", "grid");
    worksheet.table.setAttribute("aria-label", t.grid.name);
    worksheet.table.setAttribute("aria-rowcount", String(count));
    worksheet.content.tabIndex = 0;
    worksheet.content.setAttribute("aria-label", t.grid.hint);
    worksheet.content.addEventListener("focus", () => this.takeKeys());
    showWidths(worksheet, screenWidth());
    this.fit();
    for (let y = 0; y < count; y += 1) for (let x = 0; x < columns; x += 1) this.paintCell(y, x);
    this.applyRows();
    worksheet.updateSelectionFromCoords(0, 0, 0, 0);
    // A new grid takes the keys, also from somebody who types elsewhere.
    if (this.isElsewhere()) this.releaseKeys();
  }

  /** Lays in what another tab typed, selection and scrolling as they are, with an empty history; gives what is new. */
  adopt(rows: string[][], widths: number[]): Change[] {
    const worksheet = this.worksheet;
    if (!worksheet) return [];
    this.grow(rows.length);
    this.growColumns(rows.reduce((most, row) => Math.max(most, row.length), 0));
    for (const [y, line] of ((worksheet.options.data ?? []) as unknown[][]).entries()) {
      for (let x = 0; x < line.length; x += 1) line[x] = rows[y]?.[x] ?? "";
    }
    silently(worksheet, () => setWidths(worksheet, widths));
    this.showWidths();
    // Its steps lead to cells that are no longer what they were.
    worksheet.history = [];
    worksheet.historyIndex = -1;
    this.clipboard.forget();
    return this.differences();
  }

  /** Forgets the sheet. */
  close(): void {
    const holder = this.host.firstElementChild as jspreadsheet.JspreadsheetInstanceElement | null;
    if (this.worksheet && holder) jspreadsheet.destroy(holder, false);
    this.worksheet = this.window = this.frozen = undefined;
    this.unpainted.clear();
    jspreadsheet.current = null;
  }

  /** Gives the keys to the grid. */
  focus(): void {
    this.worksheet?.content.focus();
  }

  /** Whether keys go to the grid; a click gives it them without the browser's focus. */
  get hasKeys(): boolean {
    return this.worksheet !== undefined && jspreadsheet.current === this.worksheet;
  }

  private takeKeys(): void {
    if (!this.worksheet) return;
    jspreadsheet.current = this.worksheet;
    if (!this.worksheet.selectedCell) this.selectArea(this.last);
  }

  /** Whether keys and the clipboard belong to something else: an open dialog, or a field beside the grid. */
  private isElsewhere(): boolean {
    const active = document.activeElement;
    const isField = active?.matches("input, select, textarea") === true && !this.host.contains(active);
    return isField || document.querySelector("dialog:modal") !== null;
  }

  /** The grid listens to the whole page; while something else has the focus it must not. */
  releaseKeys(): void {
    if (!this.worksheet?.edition) jspreadsheet.current = null;
  }

  /** Selects a cell. */
  select(row: number, column: number): void {
    this.worksheet?.updateSelectionFromCoords(column, row, column, row);
  }

  /** Selects a cell and scrolls to it. */
  reach(row: number, column: number): void {
    this.window?.reveal(row);
    this.select(row, column);
    this.show(row, column);
  }

  /** Scrolls to a cell. */
  show(row: number, column: number): void {
    this.window?.reveal(row);
    this.worksheet?.records[row]?.[column]?.element.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** The selected area. */
  selection(): Source {
    const area = this.worksheet?.selectedCell?.map(Number);
    return area ? source(area) : this.last;
  }

  /** Selects an area. */
  selectArea({ row, column, rows, columns }: Source): void {
    this.worksheet?.updateSelectionFromCoords(column, row, column + columns - 1, row + rows - 1);
  }

  /** How many rows and columns there are to type into. */
  size(): { rows: number; columns: number } {
    return { rows: this.worksheet?.options.data?.length ?? 0, columns: this.worksheet?.cols.length ?? 0 };
  }

  /** Whether somebody types in a cell. */
  get isEditing(): boolean {
    return Boolean(this.worksheet?.edition);
  }

  /** Where somebody types, if in a cell. */
  get field(): HTMLInputElement | undefined {
    return this.isEditing ? (this.host.querySelector<HTMLInputElement>("td.editor input") ?? undefined) : undefined;
  }

  /** Takes what is being typed as it stands. */
  finishEdit(): void {
    const edition = this.worksheet?.edition;
    if (edition) this.worksheet?.closeEditor(edition[0] as HTMLTableCellElement, true);
  }

  /** The cell of the selection's corner on the screen. */
  corner(): DOMRect | undefined {
    const { row, column } = this.selection();
    return this.worksheet?.records[row]?.[column]?.element.getBoundingClientRect();
  }

  /** How the sheet looks. */
  get layout(): Layout {
    return this.looks;
  }

  /** How many rows the filters hide. */
  get hiddenCount(): number {
    return this.hidden.size;
  }

  /** Whether a row is seen when it is scrolled to. */
  isHidden(row: number): boolean {
    return this.hidden.has(row);
  }

  /** Decides again which rows the filters hide. */
  filterAgain(): void {
    this.applyRows();
    this.events.laidOut(this.looks);
  }

  private lay(layout: Layout): void {
    const isRepainted = layout.formats !== this.looks.formats;
    this.looks = layout;
    if (isRepainted) this.paintAll();
    this.applyRows();
    this.events.laidOut(layout);
  }

  /** Lays out what the filters hide and what is frozen. */
  private applyRows(): void {
    if (!this.sheet) return;
    this.hidden = hiddenRows(this.sheet, this.looks);
    this.window?.arrange(this.hidden, this.looks.frozenRows);
    this.frozen?.show(this.looks, this.shownWidths());
  }

  /** Changes how the sheet looks, as one step of the history. */
  stepLayout(layout: Layout): void {
    this.step([], this.widths(), layout);
  }

  /** Changes many cells, the columns' widths, how the sheet looks and where values come from, as one step of the history. */
  step(
    cells: Step[], widths: number[], layout = this.looks, elsewhere: readonly StepElsewhere[] = [],
    origins?: Arranged["origins"],
  ): void {
    const worksheet = this.worksheet;
    if (!worksheet) return;
    this.grow(cells.reduce((most, { row }) => Math.max(most, row + 1), 0));
    this.growColumns(cells.reduce((most, { column }) => Math.max(most, column + 1), 0));
    const selection = this.selection();
    this.again(addStep(worksheet, {
      cells, widths: { before: this.widths(), after: widths }, layout: { before: this.looks, after: layout }, elsewhere, origins,
    }), true);
    this.selectArea(selection);
  }

  private walk(record: unknown, isForward: boolean): void {
    this.again(record, isForward);
    // At an end of the history there is no step to take.
    if (record) this.events.walked(isForward);
  }

  /** Shows a step that was just done, undone or done again. The grid does its own steps itself. */
  private again(record: unknown, isForward: boolean): void {
    const step = this.worksheet && applyStep(this.worksheet, record, isForward);
    if (step) {
      // What was copied stands elsewhere now.
      this.clipboard.forget();
      if (step.elsewhere.length > 0) this.events.elsewhere(step.elsewhere, isForward);
      this.events.arranged(isForward ? step.origins?.after : step.origins?.before);
    }
    this.sync(step !== undefined);
    // What fits a column is another text in a wider one.
    this.showWidths();
    if (changesWidths(record)) this.paintAll();
    if (step) this.lay(isForward ? step.layout.after : step.layout.before);
  }

  /** Types into cells, as one step of the history. */
  type(changes: Change[]): void {
    const worksheet = this.worksheet;
    if (!worksheet) return;
    // One by one: a filled sheet has more cells than a call may have arguments.
    this.grow(changes.reduce((most, { row }) => Math.max(most, row + 1), 0));
    this.growColumns(changes.reduce((most, { column }) => Math.max(most, column + 1), 0));
    worksheet.setValue(changes.map(({ row, column, raw }) => ({ x: column, y: row, value: raw })));
  }

  /** Fills the first row of the selection down it, formulas moving along; rows that a filter hides stay as they are. */
  fillDown(): void {
    const { row, column, rows, columns } = this.selection();
    const [first, ...rest] = Array.from({ length: rows }, (_, y) => row + y).filter((y) => !this.isHidden(y));
    const changes = rest.flatMap((y) => Array.from({ length: columns }, (_, x): Change =>
      ({ row: y, column: column + x, raw: shift(this.typedAt(first ?? row, column + x), y - (first ?? row), 0) })));
    if (changes.length > 0) this.type(changes);
  }

  undo(): void {
    this.worksheet?.undo();
  }

  redo(): void {
    this.worksheet?.redo();
  }

  /** Adds rows at the end. */
  addRows(count: number): void {
    this.grow((this.worksheet?.options.data?.length ?? 0) + count);
    this.events.arranged();
  }

  /** The widths of the columns. */
  widths(): number[] {
    const { worksheet } = this;
    return worksheet?.cols.map((_, column) => keptWidth(worksheet, column) ?? WIDTH) ?? [];
  }

  /** The widths that this screen shows. */
  private shownWidths(): number[] {
    const { worksheet } = this;
    return worksheet?.cols.map((_, column) => shownWidth(worksheet, column) ?? WIDTH) ?? [];
  }

  /** Shows the columns as the screen has room for them; what fits a column is another text in a narrower one. */
  private showWidths(): void {
    const { worksheet } = this;
    if (!worksheet || !showWidths(worksheet, screenWidth())) return;
    this.paintAll();
    // Its handle stands at the selection's corner.
    silently(worksheet, () => worksheet.selectedCell && this.selectArea(this.selection()));
  }

  /** What is typed, without the empty rest. */
  rows(): string[][] {
    const data = (this.worksheet?.options.data ?? []) as unknown[][];
    const trimmed = data.map((row) => {
      const texts = row.map((cell) => String(cell ?? ""));
      return texts.slice(0, texts.findLastIndex((text) => text !== "") + 1);
    });
    return trimmed.slice(0, trimmed.findLastIndex((row) => row.length > 0) + 1);
  }

  /** Draws cells again. */
  paint(cells: Set<CellId>): void {
    if (!this.worksheet) return;
    let last = 0;
    for (const id of cells) last = Math.max(last, rowOf(id));
    this.grow(last + 1);
    for (const id of cells) this.paintCell(rowOf(id), columnOfId(id));
  }

  private typedAt(row: number, column: number): string {
    return String((this.worksheet?.options.data as unknown[][] | undefined)?.[row]?.[column] ?? "");
  }

  /** Rows for what spilled or was filled, outside of the history: an undo must not take them away. */
  private grow(rows: number): void {
    const worksheet = this.worksheet;
    const have = worksheet?.options.data?.length ?? 0;
    if (!worksheet || rows <= have) return;
    const before = worksheet.ignoreHistory;
    worksheet.ignoreHistory = true;
    worksheet.insertRow(Math.min(ROWS_MAX, rows + SPARE_ROWS) - have, have - 1);
    worksheet.ignoreHistory = before;
    this.window?.arrange(this.hidden, this.looks.frozenRows);
    worksheet.table.setAttribute("aria-rowcount", String(worksheet.options.data?.length ?? 0));
  }

  /** Columns for what is moved right, outside of the history as well. */
  private growColumns(columns: number): void {
    const worksheet = this.worksheet;
    const have = worksheet?.cols.length ?? 0;
    if (!worksheet || columns <= have) return;
    const before = worksheet.ignoreHistory;
    worksheet.ignoreHistory = true;
    const more = Math.min(COLUMNS_MAX, columns + SPARE_COLUMNS) - have;
    worksheet.insertColumn(more, have - 1, false, Array.from({ length: more }, () => this.column(WIDTH)));
    worksheet.ignoreHistory = before;
  }

  private column(width: number): jspreadsheet.Column {
    const render = (_: HTMLTableCellElement, __: unknown, x: number, y: number) => this.paintCell(y, x);
    return { type: "text", width, align: "left", render, wordWrap: false };
  }

  private paintCell(row: number, column: number): void {
    const [worksheet, sheet] = [this.worksheet, this.sheet];
    const cell = worksheet?.records[row]?.[column]?.element;
    // While somebody types in it, it is theirs.
    if (!worksheet || !sheet || !cell || worksheet.edition?.[0] === cell) return;
    if (!cell.isConnected) return void this.unpainted.add(cellId(row, column));
    const text = textAt(sheet, this.looks, row, column);
    const width = shownWidth(worksheet, column) ?? WIDTH;
    this.painter?.paint(cell, sheet, [row, column], text, formatAt(this.looks, row, column), width);
  }

  /** Paints the cells of rows that have come into the page that have changed since they were last there. */
  private paintRows(rows: Iterable<number>): void {
    if (this.unpainted.size === 0) return;
    for (const row of rows) {
      for (const column of this.worksheet?.cols.keys() ?? []) if (this.unpainted.delete(cellId(row, column))) this.paintCell(row, column);
    }
  }

  /** Paints all cells in use. */
  private paintAll(): void {
    const used = this.sheet?.extent() ?? { rows: 0, columns: 0 };
    for (let y = 0; y < used.rows; y += 1) for (let x = 0; x < used.columns; x += 1) this.paintCell(y, x);
  }

  /** Describes a cell for the formula bar and for people who listen. */
  describe(row: number, column: number): { name: string; raw: string; behind: string; spoken: string; note: string } {
    const value = this.sheet?.value(row, column) ?? null;
    const [owner, edited] = [this.sheet?.spilledFrom(row, column), this.sheet?.overrides(cellId(row, column))];
    const filled = owner === undefined ? "" : t.grid.filledBy(nameOf(owner));
    const origin = edited === undefined ? filled : t.grid.editedOf(nameOf(edited));
    const note = value instanceof CellError ? value.note : origin;
    const name = cellName(row, column);
    const text = this.sheet ? textAt(this.sheet, this.looks, row, column) : "";
    const words = value === PENDING ? t.grid.waiting : value === null ? t.grid.empty : text;
    // The formula that fills a cell in which nothing was typed.
    const behind = owner === undefined ? "" : (this.sheet?.formulaOf(row, column) ?? "");
    return { name, raw: this.typedAt(row, column), behind, spoken: [name, words, note].filter(Boolean).join(", "), note };
  }

  private onSelection(x1: number, y1: number, x2: number, y2: number): void {
    this.last = source([x1, y1, x2, y2].map(Number));
    this.at = [this.last.row, this.last.column];
    // The grid may have put other rows into the page, and scrolls to the cell next.
    this.window?.place();
    // It scrolls after this, and knows of nothing that is frozen.
    queueMicrotask(() => this.frozen?.uncover(...this.at));
    this.events.selected(...this.at);
  }

  private startFill(event: MouseEvent): void {
    if ((event.target as Element).classList.contains("jss_corner")) this.moving = this.selection();
  }

  /** A pasted table comes with columns that have room for it, where they were empty and nobody has set their width. */
  private onPaste(pasted: { value: jspreadsheet.CellValue }[][], row: number, column: number): string[][] | undefined {
    const lines = pasted.map((line) => line.map(({ value }) => String(value)));
    if (this.worksheet && lines.length > 1) fitEmpty(this.worksheet, lines, column, WIDTH);
    return this.clipboard.pasted(lines, row, column);
  }

  /** Before the grid, which knows tabs alone: a CSV is pasted as a table. */
  private onPasteEvent(event: ClipboardEvent): void {
    if (!this.hasKeys || this.isEditing) return;
    const text = event.clipboardData?.getData("text") ?? "";
    const rows = this.clipboard.csv(text);
    if (!rows) return;
    event.preventDefault();
    event.stopPropagation();
    const { row, column } = this.selection();
    this.pasteRows(rows, row, column);
    this.events.pastedCsv(rows.length, rows[0]?.length ?? 0, () => {
      this.undo();
      this.pasteRows(text.trimEnd().split(/\r\n?|\n/).map((line) => [line]), row, column);
    });
  }

  private pasteRows(rows: string[][], row: number, column: number): void {
    this.growColumns(column + (rows[0]?.length ?? 0));
    // Over a wider selection it would be repeated.
    this.select(row, column);
    this.worksheet?.paste(column, row, clipboardText(rows));
  }

  private afterChanges(): void {
    const { worksheet, sheet } = this;
    if (worksheet && this.moving) moveFormulas(worksheet, this.moving);
    this.moving = undefined;
    if (worksheet) mendFormulas(worksheet);
    if (worksheet && sheet) keepFormulas(worksheet, sheet);
    this.sync();
  }

  /** What differs from the sheet. */
  private differences(): Change[] {
    const [worksheet, sheet] = [this.worksheet, this.sheet];
    const changes: Change[] = [];
    if (!worksheet || !sheet) return changes;
    for (const [row, line] of ((worksheet.options.data ?? []) as unknown[][]).entries()) {
      for (const [column, cell] of line.entries()) {
        const raw = String(cell ?? "");
        if (raw !== sheet.raw(row, column)) changes.push({ row, column, raw });
      }
    }
    return changes;
  }

  /** Tells what differs from the sheet. */
  private sync(isStep = false): void {
    if (!this.worksheet) return;
    const changes = this.differences();
    trim(this.worksheet);
    this.showWidths();
    if (changes.length > 0) this.events.changed(changes, isStep);
    // An undo selects without telling.
    const { row, column } = this.selection();
    this.at = [row, column];
    this.events.selected(row, column);
  }

  private fit(): void {
    const content = this.worksheet?.content;
    if (!content) return;
    content.style.maxHeight = content.style.height = `${this.host.clientHeight}px`;
    content.style.width = content.style.maxWidth = `${this.host.clientWidth}px`;
    this.showWidths();
    this.window?.refresh();
    this.frozen?.show(this.looks, this.shownWidths());
  }
}
