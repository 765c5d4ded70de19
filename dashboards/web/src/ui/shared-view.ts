// What a read-only link shows: the newest version of a sheet, as it was shown where it was saved. Nothing can be typed and
// nothing asks the model: whoever has the link has no key.

import { RequestError } from "relserve-client/wire";

import { reason } from "../app/reason";
import type { WorkbookContent } from "../app/workbook-sync";
import { shared } from "../net/workbooks";
import { columnName } from "../core/address";
import { moment, t } from "../text";
import { element } from "./dom";
import { make } from "./make";

/** Rows that are shown at once; more come by the button below. */
const ROWS_SHOWN = 500;
/** Texts that stand right, as in the grid: what is shown of numbers and dates. */
const NUMBER = /^(?:[-−+(]?\s*[$€£]?\s*\d[\d.,'\s]*(?:E[-+]?\d+)?\s*[%€$£]?\)?|\d{4}-\d\d-\d\d)$/i;
const ERROR = /^#(?:N\/A|[A-Z]+(?:\/0)?[!?])$/;

/** Shows what a link's token shows, in place of everything else. */
export async function showShared(token: string): Promise<void> {
  const host = element("shared", HTMLElement);
  for (const name of ["sheet", "live", "admin"]) element(name, HTMLElement).hidden = true;
  for (const part of document.querySelectorAll<HTMLElement>("header nav, header button")) part.hidden = true;
  host.hidden = false;
  document.body.dataset["view"] = "shared";
  try {
    const { name, saved, content } = await shared(token);
    document.title = `${name} · RelServe`;
    host.replaceChildren(
      make("h2", {}, name), make("p", { class: "quiet" }, t.share.readOnly(moment(saved))),
      ...sheetsOf(name, content),
    );
  } catch (error) {
    const isOver = error instanceof RequestError && error.status === 401;
    const words = isOver ? t.share.ended : reason(error);
    host.replaceChildren(make("h2", {}, t.share.nothing), make("p", { role: "alert" }, t.share.broken(words)));
  }
}

/** Its sheets, each under its name where there are several. */
function sheetsOf(name: string, { shown: sheets, rows }: WorkbookContent): HTMLElement[] {
  const all = sheets ?? [{ name, rows }];
  if (all.length === 1) return all.map((sheet) => tableOf(name, sheet.rows));
  return all.flatMap((sheet) => [make("h3", {}, sheet.name), tableOf(sheet.name, sheet.rows)]);
}

function cellOf(text: string): HTMLTableCellElement {
  return make("td", NUMBER.test(text) ? { class: "number" } : ERROR.test(text) ? { class: "bad" } : {}, text);
}

function tableOf(name: string, rows: string[][]): HTMLElement {
  if (rows.every((row) => row.every((text) => text === ""))) return make("p", { class: "quiet" }, t.share.emptySheet);
  const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
  const columns = Array.from({ length: width }, (_, at) => at);
  const head = make("tr", {}, make("td", {}), ...columns.map((at) => make("th", { scope: "col" }, columnName(at))));
  const body = make("tbody", {});
  const table = make("table", { "aria-label": name }, make("thead", {}, head), body);
  const more = make("button", { type: "button" }, t.share.more);
  const add = () => {
    const from = body.rows.length;
    const added = rows.slice(from, from + ROWS_SHOWN).map((row, at) =>
      make("tr", {}, make("th", { scope: "row" }, String(from + at + 1)), ...columns.map((x) => cellOf(row[x] ?? ""))));
    body.append(...added);
    more.hidden = body.rows.length >= rows.length;
  };
  more.addEventListener("click", add);
  add();
  return make("div", { class: "scroll" }, table, more);
}
