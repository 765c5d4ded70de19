// Lists that come page by page, from the newest entries back: one page is read and shown at a time, however long the list is.

/** A page of a list as the server sends it, in the list's order. */
export interface Page<T> {
  data: T[];
  /** What the page before it is asked for by; null: there is none. */
  before: number | null;
}

/** A page as it is shown. */
export interface ShownPage<T> {
  /** The newest first. */
  entries: T[];
  /** Which page it is, from 1. */
  number: number;
  hasOlder: boolean;
  /** The name that was looked for; empty: all are listed. */
  sought: string;
}

/** Where a page stands: what the newer pages and itself are asked for by. The newest is asked for by nothing. */
interface PagePlace {
  sought: string;
  befores: readonly (number | undefined)[];
}

const newestOf = (sought: string): PagePlace => ({ sought, befores: [undefined] });

/** Turns the pages of a list. `read` gives a page, and `draw` shows it. */
export class PagedList<T> {
  private shown = newestOf("");
  /** What is shown, or is on its way. */
  private wanted = this.shown;
  private older: number | null = null;
  private turns = 0;

  constructor(
    private readonly read: (sought: string, before: number | undefined) => Promise<Page<T>>,
    private readonly draw: (page: ShownPage<T>) => void,
  ) {}

  /** Reads the wanted page anew. */
  refresh(): Promise<void> {
    return this.turn(this.wanted);
  }

  /** Looks for a name; for none, all are listed again. */
  find(sought: string): Promise<void> {
    return this.turn(newestOf(sought));
  }

  /** Has the next refresh read the newest page of all. */
  wantNewest(): void {
    this.wanted = newestOf("");
  }

  toOlder(): Promise<void> {
    const { sought, befores } = this.shown;
    return this.older === null ? this.refresh() : this.turn({ sought, befores: [...befores, this.older] });
  }

  toNewer(): Promise<void> {
    const { sought, befores } = this.shown;
    return befores.length === 1 ? this.refresh() : this.turn({ sought, befores: befores.slice(0, -1) });
  }

  private async turn(place: PagePlace): Promise<void> {
    this.wanted = place;
    this.turns += 1;
    const turn = this.turns;
    try {
      const page = await this.read(place.sought, place.befores.at(-1));
      // Another page was asked for meanwhile.
      if (turn !== this.turns) return;
      [this.shown, this.older] = [place, page.before];
      this.draw({ entries: page.data.toReversed(), number: place.befores.length, hasOlder: page.before !== null, sought: place.sought });
    } catch (error) {
      if (turn !== this.turns) return;
      this.wanted = this.shown;
      throw error;
    }
  }
}
