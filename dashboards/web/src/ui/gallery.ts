// What an empty sheet offers: tasks to begin with, each a button with the first rows of its table. It lies over the lower
// part of the grid, so that who wants to type just types.

import type { Template } from "../app/samples";
import type { ServedModel } from "../core/models";
import { element, onClick } from "./dom";
import { make } from "./make";
import { TaskCards } from "./tasks";

/** Most workbooks that it offers to go on with. */
const BOOKS_MAX = 6;

/** The gallery. */
export class Gallery {
  private readonly books = element("gallery-books", HTMLElement);
  private readonly panel = element("gallery", HTMLElement);
  /** Whether somebody has put it away, for as long as the page is open. */
  private isPutAway = false;
  private readonly cards: TaskCards;

  constructor(
    templates: readonly Template[], chosen: (template: Template) => void, private readonly opened: (id: string) => void,
    private readonly closed: () => void,
  ) {
    this.cards = new TaskCards(element("gallery-list", HTMLDivElement), templates, (template) => {
      chosen(template);
      // Its button goes away with the gallery.
      closed();
    });
    // The grid takes a press beside it for the end of its selection.
    this.panel.addEventListener("mousedown", (event) => event.stopPropagation());
    const close = () => {
      this.isPutAway = true;
      this.show(false);
      closed();
    };
    onClick("gallery-close", close);
    this.panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
    });
  }

  /** What the model that answers can do comes first. */
  arrange(model: ServedModel | undefined): void {
    this.cards.arrange(model);
  }

  /** Offers workbooks to go on with: who comes from another machine looks for what was done there. */
  goOn(books: readonly { id: string; name: string }[]): void {
    this.books.hidden = books.length === 0;
    element("gallery-books-list", HTMLDivElement).replaceChildren(...books.slice(0, BOOKS_MAX).map(({ id, name }) => {
      const button = make("button", { type: "button", class: "chip" }, name);
      button.addEventListener("click", () => {
        this.opened(id);
        this.closed();
      });
      return button;
    }));
  }

  /** Shows it where the sheet is empty. */
  show(isEmpty: boolean): void {
    this.panel.hidden = !isEmpty || this.isPutAway;
  }
}
