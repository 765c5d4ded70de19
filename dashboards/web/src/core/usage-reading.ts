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

const dayOf = (at: number) => Math.floor(at / DAY_MS);

/** One reading of a span. Its sums are of what was read so far. */
export class UsageReading {
  private readonly groups: Record<UsageKey, Map<string, UsageSeries>> = { tenant: new Map(), model: new Map(), route: new Map() };
  private before: string | undefined;
  private read = 0;
  private ended = false;
  /** A page came on another day than the first: the server's span is another by then, without the oldest day. */
  private isLate = false;
  private oldest: number | undefined;
  private ongoing = false;

  readonly begun: number;

  /** `now` gives unix milliseconds; the span ends with the day on which the reading begins. */
  constructor(private readonly page: ReadUsagePage, readonly span: number, private readonly now: () => number) {
    this.begun = now();
  }

  /** The last day of the span. */
  get today(): number {
    return dayOf(this.begun);
  }

  /** Pages that were read. */
  get pages(): number {
    return this.read;
  }

  /** Whether all days of the span were read. */
  get isWhole(): boolean {
    return this.ended && !this.isLate;
  }

  /** Whether there are more pages. */
  get hasMore(): boolean {
    return !this.ended;
  }

  /** Whether pages are being read. */
  get isReading(): boolean {
    return this.ongoing;
  }

  /** The last day that was read back into: some of it may be missing, where the reading is not whole. */
  get oldestDay(): number {
    return this.oldest ?? this.today;
  }

  /** Reads on until there are no more pages, at most so many pages, and no further than is wanted. What a page fails with is thrown; what came before it is kept. */
  async readOn(pages: number, isWanted: () => boolean = () => true): Promise<void> {
    this.ongoing = true;
    try {
      for (let left = pages; left > 0 && !this.ended && isWanted(); left -= 1) this.add(await this.page(this.span, this.before));
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
    this.ended = this.before === undefined;
    if (dayOf(this.now()) !== this.today) this.isLate = true;
  }
}

/** The reading that is shown, and one that takes its place as soon as it has a page: until then, and where it fails before that, the other stays. */
export class UsageReadings {
  private last: UsageReading | undefined;
  private next: UsageReading | undefined;

  /** `draw` shows a reading as far as it is. */
  constructor(
    private readonly page: ReadUsagePage,
    private readonly now: () => number,
    private readonly draw: (reading: UsageReading) => void,
  ) {}

  /** Reads a span anew where that is due. What a page fails with is thrown. */
  async refresh(span: number): Promise<void> {
    const { last } = this;
    if (!isReadingDue(this.next ?? last, span, this.now())) return;
    const next = new UsageReading(this.page, span, this.now);
    this.next = next;
    try {
      // Older days that somebody asked for are not taken away again.
      await this.readOn(next, last?.span === span ? Math.max(PAGES_AT_ONCE, last.pages) : PAGES_AT_ONCE);
    } finally {
      if (this.next === next) this.next = undefined;
    }
  }

  /** Reads older days of the reading that is shown, unless pages are being read. What a page fails with is thrown. */
  async readOlder(): Promise<void> {
    if (this.last && !this.next && !this.last.isReading) await this.readOn(this.last, PAGES_AT_ONCE);
  }

  /** Reads a reading's next pages, unless another has begun meanwhile. */
  private async readOn(reading: UsageReading, pages: number): Promise<void> {
    const isWanted = () => (this.next ?? this.last) === reading;
    try {
      await reading.readOn(pages, isWanted);
    } finally {
      if (isWanted() && reading.pages > 0) {
        this.last = reading;
        this.draw(reading);
      }
    }
  }
}

/** Whether a span is to be read anew: one page each time, many of them not as often but for another day, and none while they are read. */
export function isReadingDue(last: UsageReading | undefined, span: number, now: number): boolean {
  if (last?.span !== span) return true;
  return !last.isReading && (last.pages <= 1 || now - last.begun >= AGAIN_MS || dayOf(now) !== last.today);
}
