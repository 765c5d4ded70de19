// A table that shows one page of a list: how many entries that are, buttons for the pages beside it, a field that looks for a
// name.

import { type Page, PagedList, type ShownPage } from "../core/pages";
import { t } from "../text";
import { form, isInUse, labelled, words } from "./admin-parts";
import { make, table } from "./make";

/** What is listed, and what is said of it. */
export interface PagedTableOptions<T> {
  label: string;
  heads: readonly string[];
  said: { find: string; newer: string; older: string; shown(page: number, n: number, hasOlder: boolean): string };
  /** The list of names that the field proposes, by its id. */
  proposals: string;
  read(sought: string, before: number | undefined): Promise<Page<T>>;
  row(entry: T): HTMLTableRowElement;
}

/** The table. */
export class PagedTable<T> {
  readonly host: HTMLElement;
  private readonly rows: ReturnType<typeof table>;
  private readonly sought: HTMLInputElement;
  private readonly newer: HTMLButtonElement;
  private readonly older: HTMLButtonElement;
  private readonly ways: HTMLElement;
  private readonly note = make("p", { class: "quiet", role: "status" });
  private readonly list: PagedList<T>;

  constructor(private readonly options: PagedTableOptions<T>) {
    const { label, heads, said, proposals } = options;
    this.rows = table(label, heads);
    this.list = new PagedList((sought, before) => options.read(sought, before), (page) => this.draw(page));
    this.sought = make("input", { type: "search", name: "sought", maxlength: "100", autocomplete: "off", list: proposals });
    const submit = make("button", { type: "submit" }, t.admin.find);
    const find = form(submit, () => this.list.find(this.sought.value.trim()), labelled(said.find, this.sought));
    this.sought.addEventListener("input", () => {
      if (this.sought.value === "") find.requestSubmit();
    });
    this.newer = this.way(said.newer, () => this.list.toNewer());
    this.older = this.way(said.older, () => this.list.toOlder());
    this.ways = make("div", { class: "bar" }, this.newer, this.older);
    this.ways.hidden = true;
    this.host = make("div", {}, find, this.ways, this.note, this.rows.host);
  }

  refresh(): Promise<void> {
    return this.list.refresh();
  }

  /** Puts the focus on the rows: what had it may go when they are drawn anew. */
  focusRows(): void {
    this.rows.host.focus();
  }

  /** Has the next refresh list all from the newest: what was just made stands there. */
  wantNewest(): void {
    this.sought.value = "";
    this.list.wantNewest();
  }

  /** A button that turns the page, and says why not where that fails. */
  private way(label: string, turn: () => Promise<void>): HTMLButtonElement {
    const made = make("button", { type: "button" }, label);
    made.addEventListener("click", () => void turn().catch((error: unknown) => this.say(words(error))));
    return made;
  }

  private say(text: string): void {
    // The same again would be read out again.
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  private draw({ entries, number, hasOlder, sought }: ShownPage<T>): void {
    if (isInUse(this.rows.host)) return;
    const drawn = make("tbody", {}, ...entries.map((entry) => this.options.row(entry)));
    // Rows that are as they were stay, with the focus in them.
    if (drawn.innerHTML !== this.rows.body.innerHTML) this.rows.body.replaceChildren(...drawn.childNodes);
    this.allow(number > 1, hasOlder);
    const shown = this.options.said.shown(number, entries.length, hasOlder);
    if (sought === "") this.say(shown);
    else this.say(entries.length === 0 && !hasOlder ? t.admin.foundNone(sought) : `${t.admin.found(sought)} ${shown}`);
  }

  /** Lets the buttons be pressed that lead somewhere. The focus goes from one that does not to the other. */
  private allow(hasNewer: boolean, hasOlder: boolean): void {
    const focused = document.activeElement;
    this.ways.hidden = !hasNewer && !hasOlder;
    [this.newer.disabled, this.older.disabled] = [!hasNewer, !hasOlder];
    if (focused === this.older && !hasOlder) this.newer.focus();
    if (focused === this.newer && !hasNewer) this.older.focus();
  }
}
