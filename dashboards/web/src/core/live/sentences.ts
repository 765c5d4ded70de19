// Decisions of the scheduler, each in one sentence that needs no paper. No browser.

import { decimal, t } from "../../text";
import type { Contender, Decision } from "./events";
import { noun, title } from "./names";

/** Machine time in words: 0.2 s, 41 s, 3 ms. */
export function seconds(us: number): string {
  if (us < 995) return `${Math.max(1, Math.round(us))} µs`;
  if (us < 99_500) return `${Math.round(us / 1e3)} ms`;
  const s = us / 1e6;
  return `${decimal(s, s < 9.95 ? 1 : 0)} s`;
}

/** How many of whose rows; whose is left out where all are one tenant's. */
function rowsOf(one: Contender, rows: number, isNamed: boolean): string {
  const { tenant } = one;
  if (!isNamed) return t.decision.nobodys(rows, noun(one, rows));
  if (tenant === undefined || tenant === "others") return t.decision.anothers(rows, noun(one, rows));
  return tenant === "you" ? t.decision.yours(rows, noun(one, rows)) : t.decision.ofTenant(tenant, rows, noun(one, rows));
}

/** A sentence begins with a capital, but where a tenant's name begins it: that is written as it is. */
function upper(text: string, { tenant }: Contender): string {
  const isName = tenant !== undefined && tenant !== "you" && tenant !== "others" && text.startsWith(tenant);
  return isName ? text : text.charAt(0).toUpperCase() + text.slice(1);
}

/** A side in words: your 5 cells (C Sentiment, Reviews). */
function side(one: Contender, rows: number, isNamed: boolean): string {
  const count = rowsOf(one, rows, isNamed);
  const { id, route } = one;
  return id === undefined || route === undefined ? count : `${count} (${title({ id, route, ...(one.label ? { label: one.label } : {}) })})`;
}

/** A decision in one sentence; without tenants where all that is seen is one tenant's. */
export function sentence({ first, rival }: Decision, isNamed = true): string {
  const who = upper(side(first, first.rows, isNamed), first);
  if (!rival) return t.decision.alone(who);
  const other = side(rival, rival.waiting_rows, isNamed);
  if (first.is_urgent) return t.decision.urgent(who, other);
  const both = first.work_us !== undefined && rival.work_us !== undefined;
  if (both && (first.work_us ?? 0) <= (rival.work_us ?? 0)) {
    return t.decision.work(who, other, seconds(first.work_us ?? 0), seconds(rival.work_us ?? 0));
  }
  if (first.arrival_us <= rival.arrival_us) return t.decision.first(who, other);
  return t.decision.beside(who, other);
}
