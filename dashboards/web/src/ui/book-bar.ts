// The line of the workbook: its name, which is edited in place, the others to open, and the menu of what is done to it.

import type { Template } from "../app/samples";
import type { ServedModel } from "../core/models";
import { element, onClick } from "./dom";
import { dropDown } from "./drop-down";
import { TaskCards } from "./tasks";

/** What it tells. */
export interface BookBarEvents {
  opened(id: string): void;
  created(): void;
  renamed(name: string): void;
  deleted(): void;
  begun(template: Template): void;
  /** The model that answers the open workbook. */
  model(): ServedModel | undefined;
  read(file: File): void;
  csv(): void;
  xlsx(): void;
  /** The keys go back to the grid. */
  left(): void;
}

/** The line. */
export class BookBar {
  private readonly title = element("title", HTMLInputElement);
  private readonly picker = element("sheets", HTMLSelectElement);
  private readonly templates = element("templates", HTMLDialogElement);
  /** The name as it is kept. */
  private name = "";

  constructor(private readonly events: BookBarEvents, templates: readonly Template[], nameMax: number) {
    dropDown(element("book-menu", HTMLButtonElement), element("book-items", HTMLDivElement));
    this.title.maxLength = nameMax;
    this.title.addEventListener("keydown", (event) => this.key(event));
    this.title.addEventListener("blur", () => this.rename());
    this.picker.addEventListener("change", () => events.opened(this.picker.value));
    onClick("rename", () => {
      this.title.focus();
      this.title.select();
    });
    onClick("new", () => events.created());
    onClick("delete", () => events.deleted());
    onClick("csv", () => events.csv());
    onClick("xlsx", () => events.xlsx());
    const file = element("file", HTMLInputElement);
    onClick("import", () => file.click());
    file.addEventListener("change", () => {
      const chosen = file.files?.[0];
      file.value = "";
      if (chosen) events.read(chosen);
    });
    const cards = new TaskCards(element("templates-list", HTMLDivElement), templates, (template) => {
      this.templates.close();
      events.begun(template);
    });
    onClick("templates-open", () => {
      cards.arrange(events.model());
      this.templates.showModal();
    });
  }

  /** Shows the workbooks, and which of them is open. */
  show(books: readonly { id: string; name: string }[], open: { id: string; name: string }): void {
    this.name = open.name;
    if (document.activeElement !== this.title) this.title.value = open.name;
    this.picker.replaceChildren(...books.map(({ id, name }) => new Option(name, id, false, id === open.id)));
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") this.title.value = this.name;
    else if (event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    this.title.blur();
    this.events.left();
  }

  private rename(): void {
    const name = this.title.value.trim();
    // Nobody means to take a name away without giving another.
    if (name !== "" && name !== this.name) this.events.renamed(name);
    this.title.value = this.name;
  }
}
