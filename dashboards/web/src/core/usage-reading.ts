// The usage of a span of days, read page by page from the newest back. Pages are summed as they come and not kept.

import { type DayUsage, type UsageKey, type UsageSeries, USAGE_KEYS, addUsage, largestFirst } from "./usage-days";

/** A page of usage. */
export interface UsagePage {
  data: DayUsage[];
  /** What the next page is asked for by; null: there is none. */
  before: string | null;
}

/** Reads the page of the last so many days that stands before another. */
export type ReadUsagePage = (days: number, before: string | undefined) => Promise<UsagePage>;

/** Pages that are read without being asked for. */
export const PAGES_AT_ONCE = 10;
/** Milliseconds after which a span of many pages is read again. */
const AGAIN_MS = 300_000;
const DAY_MS = 86_400_000;

/** One reading of a span. Its sums are of what was read so far. */
export class UsageReading {
  private readonly groups: Record<UsageKey, Map<string, UsageSeries>> = { tenant: new Map(), model: new Map(), route: new Map() };
  private before: string | undefined;
  private read = 0;
  private whole = false;
  private oldest: number | undefined;
  private ongoing = false;

  /** `begun` in unix milliseconds; the span ends with its day. */
  constructor(private readonly page: ReadUsagePage, readonly span: number, readonly begun: number) {}

  /** The last day of the span. */
  get today(): number {
    return Math.floor(this.begun / DAY_MS);
  }

  /** Pages that were read. */
  get pages(): number {
    return this.read;
  }

  /** Whether all days of the span were read. */
  get isWhole(): boolean {
    return this.whole;
  }

  /** Whether pages are being read. */
  get isReading(): boolean {
    return this.ongoing;
  }

  /** The last day that was read back into: some of it may be missing, where the reading is not whole. */
  get oldestDay(): number {
    return this.oldest ?? this.today;
  }

  /** Reads on until the span is whole, at most so many pages, and no further than is wanted. What a page fails with is thrown; what came before it is kept. */
  async readOn(pages: number, isWanted: () => boolean = () => true): Promise<void> {
    this.ongoing = true;
    try {
      for (let left = pages; left > 0 && !this.whole && isWanted(); left -= 1) this.add(await this.page(this.span, this.before));
    } finally {
      this.ongoing = false;
    }
  }

  /** The sums so far, the largest first. */
  series(by: UsageKey): UsageSeries[] {
    return largestFirst(this.groups[by]);
  }

  private add({ data, before }: UsagePage): void {
    for (const by of USAGE_KEYS) addUsage(this.groups[by], data, by, this.span, this.today);
    for (const { day } of data) this.oldest = Math.min(this.oldest ?? day, day);
    this.read += 1;
    this.before = before ?? undefined;
    this.whole = this.before === undefined;
  }
}

/** Whether a span is to be read anew: one page each time, many of them not as often, and none while they are read. */
export function isReadingDue(last: UsageReading | undefined, span: number, now: number): boolean {
  if (last?.span !== span) return true;
  return !last.isReading && (last.pages <= 1 || now - last.begun >= AGAIN_MS);
}
