// Usage over time, by tenant, model or route.

import { ChartColumn } from "lucide";

import { type UsageKey, type UsageSeries, dayName, seriesOf } from "../core/usage-days";
import { usage } from "../net/people";
import { t } from "../text";
import { type AdminSection, labelled } from "./admin-parts";
import { empty, make, row, table } from "./make";

const SPANS = [7, 30, 90] as const;
const KEYS: readonly UsageKey[] = ["tenant", "model", "route"];

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
  private readonly by = make("select", { name: "by" }, ...KEYS.map((key) => new Option(t.admin.keysOfUsage[key], key)));
  private readonly rows = table(t.admin.usage, t.admin.usageHeads);

  private readonly none = empty(
    ChartColumn, t.admin.noUsage, t.admin.noUsageHint,
  );

  constructor() {
    for (const choice of [this.span, this.by]) choice.addEventListener("change", () => void this.refresh());
    const choices = make("div", { class: "bar" }, labelled(t.admin.by, this.by), labelled(t.admin.over, this.span));
    this.host = make("div", {}, choices, this.rows.host, this.none);
  }

  async refresh(): Promise<void> {
    const span = Number(this.span.value);
    const today = Math.floor(Date.now() / 86_400_000);
    const all = seriesOf(await usage(span), this.by.value as UsageKey, span, today);
    const most = Math.max(0, ...all.flatMap(({ days }) => days));
    this.none.hidden = all.length > 0;
    this.rows.host.hidden = all.length === 0;
    this.rows.body.replaceChildren(...all.map((series) =>
      row(series.name, series.requests, series.rows, series.tokens, series.cached, bars(series, most, today))));
  }
}
