// The bar of formats and views: what it does to how the open sheet looks. Each is one step of the grid's history.

import { type Area, ROWS_MAX, columnName } from "../core/address";
import { chartData } from "../core/chart-data";
import {
  CHARTS_MAX, FROZEN_COLUMNS_MAX, FROZEN_ROWS_MAX, type Layout, formatAt, withFormat,
} from "../core/layout";
import { FORMATS, FORMAT_MAX, isFormat, withDecimals } from "../core/number-format";
import type { Sheet } from "../core/sheet";
import { t } from "../text";
import { ask } from "../ui/ask";
import { ChartPanel } from "../ui/chart-panel";
import { element, onClick } from "../ui/dom";
import { FilterDialog } from "../ui/filter-dialog";
import { FindBar } from "../ui/find-bar";
import type { Grid } from "../ui/grid";
import { Menu } from "../ui/menu";

/** In the list of formats, what asks for one. */
const OWN = "own";

/** Characters of a chart's title that is made of its columns. */
const TITLE_MAX = 40;

type Command = "row" | "rows" | "column" | "columns" | "none";

/** The bar. */
export class SheetTools {
  private readonly format = element("format", HTMLSelectElement);
  private readonly filtered = element("filtered", HTMLOutputElement);
  private readonly filterDialog: FilterDialog;
  private readonly findBar: FindBar;
  readonly charts: ChartPanel;
  private isWaiting = false;

  constructor(
    private readonly grid: Grid, private readonly sheet: () => Sheet | undefined, private readonly say: (words: string) => void,
  ) {
    this.filterDialog = new FilterDialog((layout) => this.change(layout));
    this.findBar = new FindBar(grid, sheet);
    this.charts = new ChartPanel(grid, sheet);
    this.format.append(...FORMATS.map(({ name, code }) => new Option(name, code)), new Option(t.formats.custom, OWN));
    this.format.addEventListener("change", () => void this.setFormat());
    onClick("decimals-more", () => this.decimals(1));
    onClick("decimals-fewer", () => this.decimals(-1));
    onClick("filter", () => this.openFilter());
    onClick("filter-again", () => grid.filterAgain());
    onClick("chart", () => this.addChart());
    onClick("find-open", () => this.findBar.open());
    this.freezing();
  }

  /** The layout has changed, or another sheet is shown. */
  show(): void {
    const { filters } = this.grid.layout;
    const rows = Math.max(0, (this.sheet()?.extent().rows ?? 0) - 1);
    this.filtered.value = filters.length === 0 ? "" : t.filter.rows(rows - this.grid.hiddenCount, rows);
    element("filter-again", HTMLButtonElement).hidden = filters.length === 0;
    this.select();
    this.charts.show();
  }

  /** Cells wait for so many answers: when the last one is there, the filters are decided again. */
  progress(pending: number): void {
    const isOver = this.isWaiting && pending === 0;
    this.isWaiting = pending > 0;
    if (isOver && this.grid.layout.filters.length > 0) this.grid.filterAgain();
  }

  /** Another cell is selected. */
  select(): void {
    const { row, column } = this.grid.selection();
    const code = formatAt(this.grid.layout, row, column) ?? "";
    const isNamed = FORMATS.some((format) => format.code === code);
    const own = this.format.querySelector<HTMLOptionElement>("option[data-own]");
    if (isNamed) own?.remove();
    else if (own?.value !== code) {
      own?.remove();
      const option = new Option(code, code);
      option.dataset["own"] = "";
      this.format.add(option, 0);
    }
    this.format.value = code;
  }

  /** Ctrl+F, and Ctrl+Shift+L as Excel has it; false for other keys. */
  key(event: KeyboardEvent): boolean {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return false;
    const key = event.key.toLowerCase();
    if (key === "f" && !event.shiftKey) this.findBar.open();
    else if (key === "l" && event.shiftKey) this.openFilter();
    else return false;
    return true;
  }

  private change(layout: Layout): void {
    this.grid.stepLayout(layout);
    this.grid.focus();
  }

  private area(): Area {
    const { row, column, rows, columns } = this.grid.selection();
    // A whole column as far as there are rows means those to come too.
    const isWhole = rows >= this.grid.size().rows;
    return { row, column, rowEnd: isWhole ? ROWS_MAX - 1 : row + rows - 1, columnEnd: column + columns - 1 };
  }

  private lay(code: string): void {
    this.change(withFormat(this.grid.layout, this.area(), code));
  }

  private async setFormat(): Promise<void> {
    const { row, column } = this.grid.selection();
    const before = formatAt(this.grid.layout, row, column) ?? "";
    if (this.format.value !== OWN) return this.lay(this.format.value);
    const refuse = (code: string) => (isFormat(code) ? "" : t.formats.refused(FORMAT_MAX));
    const code = await ask(t.formats.title, t.formats.label, before || "#,##0.00", refuse);
    if (code === undefined) this.select();
    else this.lay(code);
  }

  private decimals(change: 1 | -1): void {
    const { row, column } = this.grid.selection();
    this.lay(withDecimals(formatAt(this.grid.layout, row, column) ?? "", change));
  }

  private openFilter(): void {
    const sheet = this.sheet();
    if (!sheet) return;
    this.grid.finishEdit();
    if (sheet.extent().rows < 2) this.say(t.filter.nothing);
    else this.filterDialog.open(sheet, this.grid.layout, this.grid.selection().column);
  }

  private addChart(): void {
    const { row, column, rows, columns } = this.grid.selection();
    const { layout } = this.grid;
    const area = { row, column, rowEnd: row + rows - 1, columnEnd: column + columns - 1 };
    if (rows < 2) return this.say(t.chart.selectFirst);
    if (layout.charts.length >= CHARTS_MAX) return this.say(t.chart.most(CHARTS_MAX));
    const title = this.chartTitle(area);
    this.change({ ...layout, charts: [...layout.charts, { kind: "column", title, area }] });
  }

  /** What a chart of an area is called: its numbers by its names, as far as both are called something. */
  private chartTitle(area: Area): string {
    const { layout } = this.grid;
    const sheet = this.sheet();
    const data = sheet && chartData(sheet, layout, area, (row) => this.grid.isHidden(row));
    const names = data?.series.map(({ name }) => name).join(", ") ?? "";
    if (!data || names === "" || names.length > TITLE_MAX) return t.chart.title(layout.charts.length + 1);
    return data.axis === t.chart.row || names === t.chart.countOf(data.axis) ? names : t.chart.by(names, data.axis);
  }

  private freezing(): void {
    const menu = new Menu<Command>(t.freeze.menu, () => {
      const { row, column } = this.grid.selection();
      const [rows, columns] = [Math.min(row + 1, FROZEN_ROWS_MAX), Math.min(column + 1, FROZEN_COLUMNS_MAX)];
      return [
        { command: "row", label: t.freeze.row, key: "" },
        { command: "rows", label: t.freeze.rows(rows), key: "" },
        { command: "column", label: t.freeze.column, key: "", begins: true },
        { command: "columns", label: t.freeze.columns(columnName(columns - 1)), key: "" },
        { command: "none", label: t.freeze.none, key: "", begins: true },
      ];
    }, (command) => this.freeze(command), () => this.grid.focus());
    const button = element("freeze", HTMLButtonElement);
    button.addEventListener("click", () => {
      const { left, bottom } = button.getBoundingClientRect();
      menu.open(left, bottom);
    });
  }

  private freeze(command: Command): void {
    const { row, column } = this.grid.selection();
    const { layout } = this.grid;
    const frozen = {
      row: { frozenRows: 1 }, rows: { frozenRows: Math.min(row + 1, FROZEN_ROWS_MAX) },
      column: { frozenColumns: 1 }, columns: { frozenColumns: Math.min(column + 1, FROZEN_COLUMNS_MAX) },
      none: { frozenRows: 0, frozenColumns: 0 },
    }[command];
    this.change({ ...layout, ...frozen });
  }
}
