// What relQueries are called before people: by column, workbook and formula, by their statement, by their client. No
// browser.

import { t } from "../../text";
import type { RelQueryIdentity } from "./events";

/** Characters of a statement in a title. */
const TITLE_MAX = 60;

const cut = (text: string) => (text.length > TITLE_MAX ? `${text.slice(0, TITLE_MAX - 1)}…` : text);

/** What stands for a relQuery in a line: the column, the statement, the client, or its route and the end of its id. */
export function title({ label, route, id }: Pick<RelQueryIdentity, "route" | "id" | "label">): string {
  const place = [label?.workbook, label?.sheet].filter((part) => part !== undefined && part !== "").join(" · ");
  if (label?.column !== undefined) return place === "" ? label.column : `${label.column}, ${place}`;
  if (label?.formula !== undefined) return cut(label.formula);
  if (place !== "") return place;
  if (label?.sql !== undefined) return cut(label.sql);
  const route_ = route || "relQuery";
  return label?.client === undefined ? `${route_} …${id.slice(-4)}` : `${label.client}, ${route_} …${id.slice(-4)}`;
}

/** All that is known of it beside its title, for who looks closer. */
export function detail({ label, request, route, id }: RelQueryIdentity): string {
  // Numbers are for those that have no words.
  const isTold = label?.formula !== undefined || label?.sql !== undefined;
  const number = request === undefined ? `relQuery ${id}` : `request ${request}`;
  const parts = [label?.formula, label?.sql, isTold ? undefined : number, route];
  return parts.filter((part) => part !== undefined && part !== "").join(" · ");
}

/** What its rows are called: cells where a sheet asked. */
export function noun(one: { route?: string; label?: RelQueryIdentity["label"] }, count: number): string {
  const isSheet = one.route === "cells" || one.label?.workbook !== undefined || one.label?.column !== undefined;
  return isSheet ? t.decision.cells(count) : t.decision.rows(count);
}
