// Elements in one line. Text is always text, never markup.

import type { IconNode } from "lucide";

import { count, decimal } from "../text";
import { icon } from "./icon";

/** An element with attributes and children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string>, ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Milliseconds as seconds. */
export const seconds = (ms: number) => `${decimal(ms / 1_000, ms < 10_000 ? 2 : 1)} s`;

/** A part of the view under a heading. */
export function section(id: string, title: string, ...children: Node[]): HTMLElement {
  return make("section", { "aria-labelledby": id }, make("h2", { id }, title), ...children);
}

/** A table with a head, which leaves out what needs no name; its body is given apart, to be filled. */
export function table(label: string, heads: readonly string[]): { host: HTMLElement; body: HTMLTableSectionElement } {
  const body = make("tbody", {});
  const head = make("tr", {}, ...heads.map((name) => (name ? make("th", { scope: "col" }, name) : make("td", {}))));
  const whole = make("table", { "aria-label": label }, make("thead", {}, head), body);
  // Keys scroll what is wider than the page.
  return { host: make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, whole), body };
}

/** A row of a table; numbers stand right, and a cell that is made already stays what it is. */
export function row(...cells: (Node | string | number)[]): HTMLTableRowElement {
  const made = cells.map((cell) => cell instanceof HTMLTableCellElement ? cell
    : typeof cell === "number" ? make("td", { class: "number" }, count(cell)) : make("td", {}, cell));
  return make("tr", {}, ...made);
}

/** The row of a table that has none. */
export function none(columns: number, words: string): HTMLTableRowElement {
  return make("tr", {}, make("td", { colspan: String(columns), class: "quiet" }, words));
}

/** What stands where there is nothing yet: what it is, and what to do. */
export function empty(drawing: IconNode, title: string, ...words: (Node | string)[]): HTMLElement {
  return make("div", { class: "empty" }, icon(drawing), make("strong", {}, title), make("span", {}, ...words));
}

/** A line that says what marks mean. */
export function legend(entries: readonly (readonly [string, string])[]): HTMLElement {
  const items = entries.map(([mark, text]) => make("li", {}, make("i", { class: `mark ${mark}`, "aria-hidden": "true" }), text));
  return make("ul", { class: "legend" }, ...items);
}

/** Sets where a piece stands in its track, in parts of it. */
export function place(piece: HTMLElement, from: number, width: number): void {
  piece.style.left = `${(100 * from).toFixed(2)}%`;
  piece.style.width = `${(100 * width).toFixed(2)}%`;
}
