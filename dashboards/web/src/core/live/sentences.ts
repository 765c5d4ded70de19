// Decisions of the scheduler, each in one sentence that needs no paper. No browser.

import type { Contender, Decision } from "./events";
import { noun, title } from "./names";

/** Machine time in words: 0.2 s, 41 s, 3 ms. */
export function seconds(us: number): string {
  if (us < 995) return `${Math.max(1, Math.round(us))} µs`;
  if (us < 99_500) return `${Math.round(us / 1e3)} ms`;
  const s = us / 1e6;
  return s < 9.95 ? `${s.toFixed(1)} s` : `${Math.round(s)} s`;
}

/** Whose a side is. */
function owner({ tenant }: Contender): string {
  if (tenant === undefined || tenant === "others") return "another tenant's";
  return tenant === "you" ? "your" : `${tenant}'s`;
}

const upper = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** A side in words: your 5 cells (C Sentiment, Reviews). */
function side(one: Contender, rows: number): string {
  const count = `${owner(one)} ${rows.toLocaleString("en")} ${noun(one, rows)}`;
  const { id, route } = one;
  return id === undefined || route === undefined ? count : `${count} (${title({ id, route, ...(one.label ? { label: one.label } : {}) })})`;
}

/** A decision in one sentence. */
export function sentence({ first, rival }: Decision): string {
  const who = upper(side(first, first.rows));
  if (!rival) return `${who} began: nothing else was waiting.`;
  const other = side(rival, rival.waiting_rows);
  if (first.is_urgent) return `${who} went before ${other}: they had waited long enough, or were urgent.`;
  const both = first.work_us !== undefined && rival.work_us !== undefined;
  if (both && (first.work_us ?? 0) <= (rival.work_us ?? 0)) {
    const work = `${seconds(first.work_us ?? 0)} of work left against ${seconds(rival.work_us ?? 0)}`;
    return `${who} went before ${other}: ${work}.`;
  }
  if (first.arrival_us <= rival.arrival_us) return `${who} went before ${other}: they came first.`;
  return `${who} began beside ${other}: there was room for both, or it was their tenant's turn.`;
}
