// What an empty sheet offers: tasks to begin with, each a button with the first rows of its table. It lies over the lower
// part of the grid, so that who wants to type just types.

import type { Template } from "../app/samples";
import type { ServedModel } from "../core/models";
import { element, onClick } from "./dom";
import { TaskCards } from "./tasks";

/** The gallery. */
export class Gallery {
  private readonly panel = element("gallery", HTMLElement);
  /** Whether somebody has put it away, for as long as the page is open. */
  private isPutAway = false;
  private readonly cards: TaskCards;

  constructor(templates: readonly Template[], chosen: (template: Template) => void, closed: () => void) {
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

  /** Shows it where the sheet is empty. */
  show(isEmpty: boolean): void {
    this.panel.hidden = !isEmpty || this.isPutAway;
  }
}
