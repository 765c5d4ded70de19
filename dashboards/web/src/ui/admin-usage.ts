// Usage over time, by tenant, model or route.

import { ChartColumn } from "lucide";

import { type UsageKey, type UsageSeries, USAGE_KEYS, dayName } from "../core/usage-days";
import { type UsageReading, UsageReadings } from "../core/usage-reading";
import { usage } from "../net/people";
import { t, time } from "../text";
import { type AdminSection, labelled, words } from "./admin-parts";
import { empty, make, row, table } from "./make";

const SPANS = [7, 30, 90] as const;
/** Rows that the table has at first, and with each "more": bars of ten thousand tenants would stop the page. */
const ROWS_STEP = 100;

/** Tokens of each day as bars; the number of each is in its title and in the table's row. */
function bars(series: UsageSeries, most: number, today: number): HTMLElement {
  const days = series.days.map((tokens, at) => {
    const bar = make("i", { title: t.admin.dayTokens(dayName(today - series.days.length + 1 + at), tokens) });
    bar.style.height = `${most > 0 ? Math.round((100 * tokens) / most) : 0}%`;
    return bar;
  });
  return make("span", { class: "days", role: "img", "aria-label": t.admin.daysOf(series.name, series.tokens) }, ...days);
}

/** The section. */
export class UsageSection implements AdminSection {
  readonly title = t.admin.usage;
  readonly host: HTMLElement;
  private readonly span = make("select", { name: "span" }, ...SPANS.map((days) => new Option(t.admin.spanDays(days), String(days))));
  private readonly by = make("select", { name: "by" }, ...USAGE_KEYS.map((key) => new Option(t.admin.keysOfUsage[key], key)));
  private readonly rows = table(t.admin.usage, t.admin.usageHeads);

  private readonly none = empty(
    ChartColumn, t.admin.noUsage, t.admin.noUsageHint,
  );

  private readonly more = make("button", { type: "button" });
  private readonly older = make("button", { type: "button" }, t.admin.readOlder);
  private readonly note = make("p", { class: "quiet", role: "status" });
  private readonly readings = new UsageReadings(usage, Date.now, (reading) => this.draw(reading));
  private shown: UsageReading | undefined;
  private rowsMax = ROWS_STEP;
  /** How far what is shown reaches. */
  private reach = "";

  constructor() {
    this.span.addEventListener("change", () => this.act(this.refresh()));
    this.by.addEventListener("change", () => this.drawRows(ROWS_STEP));
    this.more.addEventListener("click", () => this.drawRows(this.rowsMax + ROWS_STEP));
    this.older.addEventListener("click", () => this.act(this.readings.readOlder()));
    const choices = make("div", { class: "bar" }, labelled(t.admin.by, this.by), labelled(t.admin.over, this.span));
    const ways = make("div", { class: "bar" }, this.more, this.older);
    this.host = make("div", {}, choices, this.rows.host, this.none, ways, this.note);
    for (const later of [this.more, this.older, this.note]) later.hidden = true;
  }

  async refresh(): Promise<void> {
    await this.readings.refresh(Number(this.span.value));
  }

  /** What somebody asked for; says why not where that fails. */
  private act(done: Promise<void>): void {
    this.older.disabled = true;
    const failed = (error: unknown) => this.say(words(error));
    void done.catch(failed).finally(() => {
      this.older.disabled = false;
    });
  }

  private say(problem = ""): void {
    const text = [problem, this.reach].filter(Boolean).join(" ");
    this.note.hidden = text === "";
    // The same again would be read out again.
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  private draw(reading: UsageReading): void {
    this.shown = reading;
    this.older.hidden = !reading.hasMore;
    const at = time(reading.begun);
    if (!reading.isWhole) this.reach = t.admin.usageNotWhole(at, dayName(reading.oldestDay));
    else this.reach = reading.pages > 1 ? t.admin.usageAsOf(at) : "";
    this.say();
    this.drawRows(this.rowsMax);
  }

  private drawRows(most: number): void {
    this.rowsMax = most;
    if (!this.shown) return;
    const { today } = this.shown;
    const all = this.shown.series(this.by.value as UsageKey);
    const tokens = all.reduce((highest, { days }) => Math.max(highest, ...days), 0);
    this.none.hidden = all.length > 0;
    this.rows.host.hidden = all.length === 0;
    this.rows.body.replaceChildren(...all.slice(0, most).map((series) =>
      row(series.name, series.requests, series.rows, series.tokens, series.cached, bars(series, tokens, today))));
    this.more.hidden = all.length <= most;
    this.more.textContent = t.admin.moreUsage(all.length - most);
  }
}
