// What an empty sheet offers: tasks to begin with, each a button with the first rows of its table. It lies over the lower
// part of the grid, so that who wants to type just types.

import type { Template } from "../app/samples";
import { t } from "../text";
import { element, onClick } from "./dom";
import { make } from "./make";

/** Rows of a table that its card shows, the header's included. */
const ROWS = 3;
const COLUMNS = 2;

/** The gallery. */
export class Gallery {
  private readonly panel = element("gallery", HTMLElement);
  /** Whether somebody has put it away, for as long as the page is open. */
  private isPutAway = false;
  private readonly list = element("gallery-list", HTMLUListElement);
  private readonly cards: readonly { item: HTMLLIElement; isBeyondDemo: boolean }[];

  constructor(templates: readonly Template[], chosen: (template: Template) => void, closed: () => void) {
    this.cards = templates.map((template) => ({
      isBeyondDemo: template.isBeyondDemo,
      item: make("li", {}, card(template, () => {
        chosen(template);
        // Its button goes away with the gallery.
        closed();
      })),
    }));
    this.arrange(false);
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
  arrange(isDemo: boolean): void {
    const isLate = ({ isBeyondDemo }: { isBeyondDemo: boolean }) => isDemo && isBeyondDemo;
    const cards = [...this.cards.filter((one) => !isLate(one)), ...this.cards.filter(isLate)].map(({ item }) => item);
    if (cards.some((item, place) => this.list.children[place] !== item)) this.list.replaceChildren(...cards);
  }

  /** Shows it where the sheet is empty. */
  show(isEmpty: boolean): void {
    this.panel.hidden = !isEmpty || this.isPutAway;
  }
}

/** A button whose name is what it does; the table in it is only to look at. */
export function card({ name, about, isBeyondDemo, wantsLarger, rows, sample }: Template, chosen: () => void): HTMLButtonElement {
  const lines = rows.slice(0, ROWS).map((row, y) =>
    make("tr", {}, ...Array.from({ length: COLUMNS }, (_, x) =>
      y > 0 && x > 0 ? make("td", { class: "answer" }, sample[y - 1] ?? "") : make(y === 0 ? "th" : "td", {}, row[x] ?? ""))));
  const note = wantsLarger ? [" ", make("span", { class: "quiet note" }, t.templates.larger)]
    : isBeyondDemo ? [" ", make("span", { class: "quiet beyond" }, t.templates.beyond)] : [];
  const button = make("button", { type: "button", class: "card" },
    make("strong", {}, name), " ", make("span", {}, about), ...note,
    make("span", { class: "sample", "aria-hidden": "true", lang: "en" }, make("table", {}, make("tbody", {}, ...lines))));
  button.addEventListener("click", chosen);
  return button;
}
