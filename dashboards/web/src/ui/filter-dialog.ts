// The filter of a column: a criterion, and which of its texts are shown.

import { columnName } from "../core/address";
import { textsOf } from "../core/filter";
import { type Layout, withFilter } from "../core/layout";
import type { Sheet } from "../core/sheet";
import { shown } from "relserve-client/value";
import { count, t } from "../text";
import { element, onClick } from "./dom";
import { make } from "./make";

/** Texts to choose among; more are filtered by a criterion. */
const TEXTS_MAX = 500;

/** The dialog. */
export class FilterDialog {
  private readonly dialog = element("filter-dialog", HTMLDialogElement);
  private readonly title = element("filter-title", HTMLHeadingElement);
  private readonly criterion = element("filter-criterion", HTMLInputElement);
  private readonly list = element("filter-list", HTMLDivElement);
  private readonly note = element("filter-note", HTMLParagraphElement);
  private column = 0;
  private layout: Layout | undefined;
  private texts: string[] = [];

  constructor(private readonly apply: (layout: Layout) => void) {
    onClick("filter-all", () => this.check(true));
    onClick("filter-none", () => this.check(false));
    onClick("filter-cancel", () => this.dialog.close());
    onClick("filter-remove", () => this.finish([], ""));
    this.dialog.querySelector("form")?.addEventListener("submit", (event) => {
      event.preventDefault();
      const hidden = this.boxes().flatMap((box, i) => (box.checked ? [] : [this.texts[i] ?? ""]));
      this.finish(hidden, this.criterion.value.trim());
    });
  }

  /** Opens it for a column. */
  open(sheet: Sheet, layout: Layout, column: number): void {
    this.column = column;
    this.layout = layout;
    const filter = layout.filters.find((one) => one.column === column);
    const header = shown(sheet.value(0, column)).trim();
    this.title.textContent = header ? t.filter.titleNamed(columnName(column), header) : t.filter.title(columnName(column));
    this.criterion.value = filter?.criterion ?? "";
    const counts = textsOf(sheet, layout, column);
    const hidden = new Set(filter?.hidden);
    this.texts = [...counts.keys()].slice(0, TEXTS_MAX);
    this.list.replaceChildren(...this.texts.map((text) => this.line(text, counts.get(text) ?? 0, !hidden.has(text))));
    this.note.textContent = counts.size > TEXTS_MAX ? t.filter.some(TEXTS_MAX, counts.size) : "";
    this.dialog.showModal();
    this.criterion.focus();
  }

  private line(text: string, times: number, isShown: boolean): HTMLElement {
    const box = make("input", { type: "checkbox" });
    box.checked = isShown;
    return make("label", { class: "line" }, box, make("span", {}, text === "" ? t.filter.blank : text), make("span", { class: "quiet" }, count(times)));
  }

  private boxes(): HTMLInputElement[] {
    return Array.from(this.list.querySelectorAll("input"));
  }

  private check(isShown: boolean): void {
    for (const box of this.boxes()) box.checked = isShown;
  }

  private finish(hidden: string[], criterion: string): void {
    this.dialog.close();
    if (this.layout) this.apply(withFilter(this.layout, { column: this.column, hidden, criterion }));
  }
}
