// The templates as cards. Those that the model which answers does badly, or refuses, stand below the others, under a heading
// that says so and leads to models that do them.

import type { Template } from "../app/samples";
import { type ServedModel, isWithin } from "../core/models";
import { t } from "../text";
import { element } from "./dom";
import { make } from "./make";

/** Rows of a table that its card shows, the header's included. */
const ROWS = 3;
const COLUMNS = 2;

/** The cards. */
export class TaskCards {
  private readonly able = make("ul", { class: "cards" });
  private readonly unable = make("ul", { class: "cards" });
  private readonly why = make("span", { class: "quiet" });
  private readonly models = make("button", { type: "button" }, t.templates.others);
  private readonly later = make("section", { class: "later", "aria-label": t.templates.larger },
    make("div", { class: "bar" }, make("h3", {}, t.templates.larger), this.why, this.models), this.unable);
  private readonly cards: readonly { item: HTMLLIElement; template: Template }[];

  constructor(host: HTMLElement, templates: readonly Template[], chosen: (template: Template) => void) {
    this.cards = templates.map((template) => ({ template, item: make("li", {}, card(template, () => chosen(template))) }));
    this.models.addEventListener("click", () => element("models-open", HTMLButtonElement).click());
    host.append(this.able, this.later);
    this.arrange(undefined);
  }

  /** What the model that answers can do comes first. */
  arrange(model: ServedModel | undefined): void {
    const of = (isAble: boolean) => this.cards.filter(({ template }) => isWithin(model, template) === isAble).map(({ item }) => item);
    for (const [list, items] of [[this.able, of(true)], [this.unable, of(false)]] as const) {
      // A card that is moved loses the keys.
      if (items.length !== list.children.length || items.some((item, place) => list.children[place] !== item)) list.replaceChildren(...items);
    }
    this.later.hidden = this.unable.children.length === 0;
    this.why.textContent = model === undefined ? "" : (model.picks_only ? t.templates.refused : t.templates.largerWhy)(model.id);
  }
}

/** A button whose name is what it does; the table in it is only to look at. */
function card({ name, about, isBeyondDemo, rows, sample }: Template, chosen: () => void): HTMLButtonElement {
  const lines = rows.slice(0, ROWS).map((row, y) =>
    make("tr", {}, ...Array.from({ length: COLUMNS }, (_, x) =>
      y > 0 && x > 0 ? make("td", { class: "answer" }, sample[y - 1] ?? "") : make(y === 0 ? "th" : "td", {}, row[x] ?? ""))));
  const note = isBeyondDemo ? [" ", make("span", { class: "quiet beyond" }, t.templates.beyond)] : [];
  const button = make("button", { type: "button", class: "card" },
    make("strong", {}, name), " ", make("span", {}, about), ...note,
    make("span", { class: "sample", "aria-hidden": "true", lang: "en" }, make("table", {}, make("tbody", {}, ...lines))));
  button.addEventListener("click", chosen);
  return button;
}
