// While a formula is typed, in a cell or in the bar, a press on another cell writes its reference, and a drag a range. The grid
// alone would take the press for the end of what is typed, and keep half a formula.

import { type Pointed, referenceTo, takesReference } from "../core/pointing";

/** A reference that was pointed at, in the field's text. */
interface Written {
  field: HTMLInputElement;
  from: number;
  text: string;
}

/** The cell or the head of a column at a place of the page. */
function pointed(target: EventTarget | null): Pointed | undefined {
  const cell = target instanceof Element ? target.closest<HTMLElement>("td[data-x]") : null;
  if (!cell || cell.classList.contains("editor")) return undefined;
  const { x, y } = cell.dataset;
  return { row: y === undefined ? undefined : Number(y), column: Number(x) };
}

/** Has presses on a grid write references into `field`, where somebody types in one. */
export function point(grid: HTMLElement, field: () => HTMLInputElement | undefined): void {
  let start: Pointed | undefined;
  let written: Written | undefined;
  const write = (into: HTMLInputElement, from: number, before: string, text: string) => {
    into.setRangeText(text, from, from + before.length, "end");
    written = { field: into, from, text };
    into.dispatchEvent(new Event("input", { bubbles: true }));
  };
  /** The reference that was written last, where the caret still stands behind it: another press means another one instead. */
  const replaced = (into: HTMLInputElement) => {
    if (written?.field !== into) return undefined;
    const { from, text } = written;
    return into.selectionStart === from + text.length && into.value.startsWith(text, from) ? written : undefined;
  };
  grid.addEventListener("mousedown", (event) => {
    const [into, at] = [field(), pointed(event.target)];
    if (!into || !at || event.button !== 0) return;
    const caret = into.selectionStart ?? into.value.length;
    const last = replaced(into);
    if (!last && !takesReference(into.value.slice(0, caret))) return;
    event.preventDefault();
    event.stopPropagation();
    start = at;
    write(into, last?.from ?? caret, last?.text ?? "", referenceTo(at, at));
  }, true);
  addEventListener("mousemove", (event) => {
    const to = pointed(event.target);
    if (!start || !written || !to || !grid.contains(event.target as Node)) return;
    const text = referenceTo(start, to);
    if (text !== written.text) write(written.field, written.from, written.text, text);
  }, true);
  addEventListener("mouseup", () => {
    start = undefined;
  }, true);
}
