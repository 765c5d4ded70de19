// The open sheet and its neighbours: which one is shown, when it is saved, and what the toolbar does to it.

import { CATALOGUE } from "relserve-client/catalogue";
import { tableOf } from "relserve-client/column";
import { noUsage } from "relserve-client/usage";
import { CellError } from "relserve-client/value";

import { type CellId, cellName } from "../core/address";
import { cellLabel } from "../core/cell-label";
import { refuses } from "../core/models";
import { afterTyping } from "../core/origins";
import type { Change } from "../core/sheet";
import { asksModel, isFormula, rawOf } from "../core/typed";
import { estimateOf } from "../net/estimate";
import { Journal } from "../store/journal";
import type { Stores } from "../store/scope";
import { SHEETS_MAX, SheetStore, TITLE_MAX, type StoredSheet, identifier, newSheet, noteIdentity, noteShown, noteTab, shownHere, tabShownHere } from "../store/sheets";
import { t } from "../text";
import type { AnsweringModel } from "../ui/answering";
import { confirmedDeletion } from "../ui/ask";
import { element, onClick } from "../ui/dom";
import { AiColumnDialog } from "../ui/ai-column";
import { BookBar } from "../ui/book-bar";
import { CompletionPanel } from "../ui/completion";
import { EstimateDialog } from "../ui/estimate";
import { FormulaBar } from "../ui/formula-bar";
import { Gallery } from "../ui/gallery";
import { Grid } from "../ui/grid";
import { type Inspected, Inspector } from "../ui/inspector";
import { ModelsDialog } from "../ui/models";
import { point } from "../ui/pointing";
import { Progress } from "../ui/progress";
import { ShareDialog } from "../ui/share";
import type { ServerLine } from "../ui/server-line";
import { SelectionSummary } from "../ui/summary";
import { Toolbar } from "../ui/toolbar";
import { hangUsage, showUsage } from "../ui/usage";
import { Arranger } from "./arranger";
import { Asking } from "./asking";
import { shownOf } from "./files";
import { cellMenu } from "./cell-menu";
import { Inspection } from "./inspection";
import { Keeping } from "./keeping";
import { SheetWriter, copyName, freeName } from "./sheet-writer";
import { reason } from "./reason";
import { TEMPLATES, type Template } from "./samples";
import { previewColumn } from "./preview";
import { Session, type SessionHost } from "./session";
import { SheetTools } from "./sheet-tools";
import { Tabs, keepModel, keepSheets, sheetsIn } from "./tabs";
import { Transfer } from "./transfer";
import { isBlank } from "./workbook-sync";
import { sheetShown, worldOf } from "./world";

/** Typing is saved this soon, in milliseconds. */
const SAVE_DELAY_MS = 300;

/** The sheet view. */
export class Workspace {
  private readonly grid: Grid;
  private readonly progress = new Progress();
  private readonly estimate = new EstimateDialog(estimateOf);
  private readonly bar: FormulaBar;
  private readonly completion = new CompletionPanel({
    field: () => this.field, refuses: (name) => this.refuses(name),
  });
  private readonly world: SessionHost;
  private readonly name = element("name", HTMLOutputElement);
  private readonly again = element("retry", HTMLButtonElement);
  private readonly note = element("note", HTMLOutputElement);
  private readonly spoken = element("spoken", HTMLDivElement);
  private readonly summary = new SelectionSummary();
  private readonly arranger: Arranger;
  private readonly inspection: Inspection;
  private readonly inspector: Inspector;
  private readonly asking: Asking;
  private readonly gallery: Gallery;
  private readonly books: BookBar;
  private readonly transfer: Transfer;
  private readonly tabs: Tabs;
  private readonly tools: SheetTools;
  private list: StoredSheet[] = [];
  private current: StoredSheet = newSheet("");
  /** What the page opened with. */
  private arrival: StoredSheet | undefined;
  private session: Session | undefined;
  private selected: [number, number] = [0, 0];
  private saveTimer: number | undefined;
  private readonly writer: SheetWriter | undefined;
  private keeping: Keeping | undefined;
  /** Calls of the open sheet that had no answer when it was last looked at. */
  private pending = 0;
  /** Tells other tabs which sheet was written or deleted. */
  private readonly otherTabs = new BroadcastChannel("relserve-sheets");

  private constructor(
    private readonly store: SheetStore | undefined, private readonly journal: Journal, private readonly answering: AnsweringModel,
    private readonly unauthorized: () => void, private readonly server: ServerLine,
  ) {
    this.grid = new Grid(element("grid", HTMLDivElement), {
      changed: (changes, isStep) => {
        // What was said was about the sheet before.
        this.progress.say("");
        this.session?.set(changes);
        if (this.session && !isStep) this.tabs.origins = afterTyping(this.session.sheet, this.tabs.origins, changes);
        this.edited();
        this.explain(changes);
        this.gallery.show(this.isEmpty());
      },
      selected: (row, column) => this.select(row, column),
      arranged: (origins) => {
        this.tabs.origins = origins ?? this.tabs.origins;
        this.edited();
      },
      typing: (text) => this.bar.mirror(text),
      typed: () => {
        // The grid takes its field away without a word.
        this.completion.close();
        this.describe(false);
      },
      pastedCsv: (rows, columns, asLines) => this.progress.offer(t.transfer.pastedCsv(rows, columns), () => {
        asLines();
        this.grid.focus();
      }),
      walked: (isForward) => this.progress.say(isForward ? t.workbook.done : t.workbook.undone),
      laidOut: () => {
        this.tools.show();
        this.sumUp();
      },
      elsewhere: (steps, isForward) => this.tabs.follow(steps, isForward),
    });
    this.world = worldOf({
      model: () => this.current.model, allow: (calls) => this.estimate.ask(calls), heard: () => this.server.heard(),
      unauthorized: () => this.unauthorized(),
    });
    this.bar = new FormulaBar({
      selected: () => this.selected,
      type: (row, column, raw) => {
        this.grid.type([{ row, column, raw }]);
        this.describe(false);
      },
      left: (next) => {
        if (next) this.grid.select(...next);
        this.describe(false);
        this.grid.focus();
      },
    });
    const say = (words: string) => this.progress.say(words);
    this.arranger = new Arranger(this.grid, () => this.session,
      (sheet) => (sheet === undefined ? this.tabs.origins : this.tabs.originsOf(sheet)), say);
    this.tools = new SheetTools(this.grid, () => this.session?.sheet, say);
    this.tabs = new Tabs(this.grid, {
      session: () => this.session, edited: () => this.edited(), say,
      shown: (place) => {
        noteTab(this.current.id, place);
        this.bar.forget();
        this.tools.show();
      },
      snapshot: (place) => this.snapshot(place),
      offer: (words, back) => this.progress.offer(words, back),
    });
    this.inspection = new Inspection(() => this.inspector.show());
    this.inspector = new Inspector({
      inspect: () => this.inspect(),
      again: () => {
        const [row, column] = this.selected;
        this.asking.ask({ row, rowEnd: row, column, columnEnd: column });
      },
      // The grid takes its new height when the page is laid out.
      opened: () => requestAnimationFrame(() => requestAnimationFrame(() => this.grid.show(...this.selected))),
      closed: () => this.grid.focus(),
    });
    this.asking = new Asking({
      grid: this.grid, session: () => this.session, origins: () => this.tabs.origins, inspect: () => this.inspector.open(), say,
    });
    this.gallery = new Gallery(TEMPLATES, (template) => this.begin(template), (id) => this.goOnWith(id), () => this.grid.focus());
    this.answering.tell((model) => this.gallery.arrange(model));
    this.writer = store && new SheetWriter(store, {
      wrote: (id) => {
        this.otherTabs.postMessage(id);
        this.keeping?.soon();
      },
      conflicted: (sheet, other) => this.goOnAsCopy(sheet, other),
      settled: () => {
        document.body.dataset.saved = "yes";
        this.journal.drop();
      },
      failed: (error) => this.progress.say(t.workbook.notKept(reason(error)), true),
    });
    this.otherTabs.addEventListener("message", ({ data }) => void this.onOtherTab(String(data)));
    this.transfer = new Transfer({
      open: () => this.session && { book: this.session.book, sheet: this.session.sheet, name: this.current.name, looks: this.tabs.looks() },
      add: (sheet) => this.add(sheet),
      say: (words) => this.progress.say(words),
    });
    this.books = this.bookBar();
    this.buttons();
    cellMenu(this.grid, this.arranger, this.asking);
    hangUsage();
    point(element("grid", HTMLDivElement), () => this.field);
    this.columns();
    addEventListener("beforeunload", () => this.save());
    addEventListener("pagehide", () => this.leave());
    document.addEventListener("visibilitychange", () => document.hidden && this.leave());
    new ModelsDialog(this.answering, (name) => this.choose(name));
    new ShareDialog({
      open: () => (this.keeping ? this.current : undefined),
      keep: () => this.keepNow(),
      restore: (sheet) => this.restore(sheet),
    });
    document.addEventListener("focusin", (event) => {
      if (!element("grid", HTMLDivElement).contains(event.target as Node)) this.grid.releaseKeys();
    });
    // A dialog that closes leaves the keys to nobody where nobody had them before it: to itself, until it is drawn.
    document.addEventListener("close", (event) => {
      const active = document.activeElement;
      if (active === document.body || (event.target as Node).contains(active)) this.grid.focus();
    }, true);
    document.addEventListener("keydown", (event) => this.keys(event));
    // Before the grid, which would type a space.
    addEventListener("keydown", (event) => {
      if (!this.arranger.key(event)) return;
      event.preventDefault();
      event.stopPropagation();
    }, true);
  }

  /** Where somebody types, in a cell or in the bar. */
  private get field(): HTMLInputElement | undefined {
    return this.grid.field ?? this.bar.field;
  }

  /** Whether the model that answers refuses a function, by the name that a formula has. */
  private refuses(name: string): boolean {
    const item = CATALOGUE.get(name);
    return item !== undefined && refuses(this.answering.current, item.name);
  }

  /** Opens the sheet that this tab showed last, else the one that was changed last. */
  static async open(sheets: string, answering: AnsweringModel, unauthorized: () => void, server: ServerLine): Promise<Workspace> {
    // Private windows of some browsers have no store: sheets then live as long as the page.
    const store = await SheetStore.open(sheets).catch(() => undefined);
    const journal = new Journal(sheets);
    const copies = store ? await journal.recover(store) : [];
    const workspace = new Workspace(store, journal, answering, unauthorized, server);
    workspace.list = (await store?.list()) ?? [];
    const first = workspace.list.find(({ id }) => id === shownHere()) ?? workspace.list[0];
    if (first) workspace.show(first);
    else workspace.add(newSheet(t.workbook.name(1)));
    workspace.arrival = workspace.current;
    workspace.listSheets();
    if (!store) {
      workspace.progress.say(t.workbook.noStore, true);
      server.keeps("nowhere");
    }
    if (copies.length > 0) workspace.progress.say(t.workbook.recovered(copies), true);
    return workspace;
  }

  /** Has the server keep the sheets, as those of the tenant whose stores they are in. */
  async keep(stores: Stores): Promise<void> {
    if (!this.store || this.keeping) return;
    const changed = (id: string, words: string) => {
      this.otherTabs.postMessage(id);
      void this.onOtherTab(id, words);
    };
    this.keeping = await Keeping.open(this.store, stores, {
      changed,
      conflicted: (id, copy, words) => void this.goOnAsServersCopy(id, copy, words),
      nameTaken: (id, free) => this.nameTaken(id, free),
      said: (words) => this.progress.say(words),
      shown: (id) => (id === this.current.id && this.session ? shownOf(this.session.book.members) : undefined),
    }, this.server);
  }

  /** The server went or came: what is kept there is looked at. Gives whether this page keeps anything there. */
  synchronize(): boolean {
    this.keeping?.again();
    return this.keeping !== undefined;
  }

  /** Gives the keys to the sheet. */
  focus(): void {
    this.grid.focus();
  }

  /** Asks again what failed, such as after a new key. */
  retry(): void {
    this.session?.retry();
  }

  /** The dialog for a column of answers. */
  private columns(): void {
    const sheet = () => this.session?.sheet;
    new AiColumnDialog({
      table: () => {
        const open = sheet();
        return open && tableOf(open);
      },
      value: (row, column) => sheet()?.value(row, column) ?? null,
      refuses: (name) => refuses(this.answering.current, name),
      preview: (formula, table, show) => {
        const open = sheet();
        return open ? previewColumn(open, formula, table, this.world, show) : () => undefined;
      },
      add: (formula, name, { first, free }) => {
        const header = first > 0 ? [{ row: first - 1, column: free, raw: rawOf(name) }] : [];
        this.grid.type([...header, { row: first, column: free, raw: formula }]);
        this.grid.focus();
        this.grid.select(first, free);
      },
      say: (words) => this.progress.say(words),
    });
  }

  private show(sheet: StoredSheet): void {
    this.session?.close();
    // Until the grid shows this sheet, nothing of it is painted into the last one.
    this.session = undefined;
    this.current = sheet;
    this.answering.choose(sheet.model);
    this.progress.reset();
    noteShown(sheet.id);
    sheet.usage = { ...noUsage(), ...sheet.usage };
    const session: Session = new Session(
      {
        ...this.world,
        label: (cell) => cellLabel(sheet.name, session.sheet, cell),
        paint: (cells) => this.paint(session, cells),
        progress: () => this.showProgress(session),
        allow: async (calls) => {
          await sheetShown();
          return session === this.session && this.estimate.ask(calls);
        },
      },
      sheet.usage, undefined, new Set(sheet.calledOff),
    );
    this.tabs.load(sheet, session, tabShownHere(sheet.id));
    // A sheet that has had so many answers asks for what the server's cache has.
    if (sheet.usage.answered >= session.pending.calls) session.allow();
    this.session = session;
    this.tabs.open(session);
    this.gallery.show(this.isEmpty());
    this.listSheets();
    this.showProgress(session);
  }

  private paint(session: Session, cells: Set<CellId>): void {
    if (session !== this.session) return;
    this.grid.paint(cells);
    this.tools.charts.soon();
    this.describe(false);
  }

  private showProgress(session: Session): void {
    if (session !== this.session) return;
    const { pending, stopped, usage, isReconnecting, isPaused, delay } = session;
    if (pending.calls > 0) this.server.found(isReconnecting);
    // Before a button beside the progress goes, which leaves the keys to this one.
    this.showRetry(session);
    this.progress.show({ pending: pending.calls, stopped, usage, now: performance.now(), isReconnecting, isPaused, delay });
    this.inspector.show();
    showUsage(session.usage);
    this.keepCalledOff(session);
    this.tools.progress(pending.calls);
    if (session.pending.calls === 0) {
      this.saveSoon();
      if (this.pending > 0) this.keeping?.answered(this.current.id);
    }
    this.pending = session.pending.calls;
  }

  private showRetry({ hasFailed }: Session): void {
    if (!hasFailed && document.activeElement === this.again) this.grid.focus();
    this.again.disabled = !hasFailed;
  }

  /** Keeps with the sheet what was called off: who opens it again has said no to that. */
  private keepCalledOff({ calledOff }: Session): void {
    const { current } = this;
    if (calledOff.size === (current.calledOff?.length ?? 0)) return;
    if (calledOff.size > 0) current.calledOff = [...calledOff];
    else delete current.calledOff;
    this.saveSoon();
  }

  private listSheets(): void {
    this.books.show(this.list, this.current);
    const others = this.list.filter((sheet) => sheet !== this.current && !isBlank(sheet));
    this.gallery.goOn(this.current === this.arrival ? others : []);
  }

  private freeName(): string {
    return freeName(this.list.map(({ name }) => name));
  }

  /** Another machine has a workbook of the name that a new one got here. */
  private nameTaken(id: string, free: string): boolean {
    const sheet = this.list.find((one) => one.id === id);
    if (!sheet) return false;
    const before = sheet.name;
    sheet.name = free;
    this.writer?.edited(sheet);
    if (sheet === this.current) this.save();
    else void this.writer?.save(sheet);
    this.listSheets();
    this.progress.say(t.workbook.nameTaken(before, free));
    return true;
  }

  /** Opens a workbook instead of the empty one that the page opened with, of which nothing is kept. */
  private goOnWith(id: string): void {
    const empty = this.current;
    this.openBook(id);
    if (empty === this.current || !isBlank(empty)) return;
    this.drop(empty, "");
    this.listSheets();
    void this.store?.remove(empty.id).then(() => this.otherTabs.postMessage(empty.id));
  }

  private openBook(id: string): void {
    const chosen = this.list.find((sheet) => sheet.id === id);
    this.save();
    if (chosen) this.show(chosen);
  }

  private add(sheet: StoredSheet): void {
    if (this.list.length >= SHEETS_MAX) {
      this.progress.say(t.workbook.most(SHEETS_MAX));
      return;
    }
    this.save();
    this.list.unshift(sheet);
    this.writer?.edited(sheet);
    this.show(sheet);
    this.save();
  }

  private begin({ name, rows, widths }: Template): void {
    this.add(newSheet(name, rows, widths));
    // The bar shows what fills its column.
    const row = rows.findIndex((cells) => cells.some(asksModel));
    this.grid.select(row, rows[row]?.findIndex(asksModel) ?? 0);
  }

  private edited(): void {
    // What a step back would lead to is not what was there.
    this.progress.withdraw();
    this.writer?.edited(this.current);
    this.current.updated = Date.now();
    this.saveSoon();
  }

  private saveSoon(): void {
    clearTimeout(this.saveTimer);
    document.body.dataset.saved = "no";
    this.saveTimer = window.setTimeout(() => this.save(), SAVE_DELAY_MS);
  }

  private save(): void {
    clearTimeout(this.saveTimer);
    const sheet = this.current;
    if (!this.list.includes(sheet) || !this.session) return;
    this.tabs.store(sheet);
    void this.writer?.save(sheet);
  }

  /** The page goes, or may: what the store has not taken is kept where it is kept at once. */
  private leave(): void {
    this.save();
    if (!this.writer?.hasUnsaved(this.current)) return;
    this.journal.keep(this.current);
    this.keeping?.leave(this.current);
  }

  /** Another tab, or the server, wrote or deleted a sheet. */
  private async onOtherTab(id: string, words = ""): Promise<void> {
    const fresh = await this.store?.get(id);
    const known = this.list.find((sheet) => sheet.id === id);
    // What was edited here is decided by its own write, which may have been made while this was read.
    if (known && this.writer?.hasUnsaved(known)) return;
    if (known && fresh && fresh.version <= known.version) return;
    if (known && fresh) this.adopt(known, fresh, words);
    else if (known) this.drop(known, words || t.workbook.deletedInTab(known.name));
    else if (fresh) this.list.push(fresh);
    // An empty one of this browser gives way to one of the same name that came.
    if (!known && fresh?.name === this.current.name && this.current === this.arrival && this.isEmpty()) this.rename(this.freeName());
    this.listSheets();
  }

  private adopt(sheet: StoredSheet, fresh: StoredSheet, words: string): void {
    // The session counts in the usage that it was given.
    const hasOtherModel = sheet.model !== fresh.model;
    Object.assign(sheet, fresh, { usage: sheet.usage });
    keepSheets(sheet, sheetsIn(fresh));
    keepModel(sheet, fresh.model);
    if (sheet !== this.current) return;
    if (hasOtherModel) this.asksOther();
    if (!this.session || !this.tabs.adopt(sheet, this.session)) this.show(sheet);
    this.gallery.show(this.isEmpty());
    this.describe(false);
    this.progress.say(words || t.workbook.changedInTab);
  }

  /** Goes on with a copy, since another tab was first to write. */
  private goOnAsCopy(sheet: StoredSheet, other: StoredSheet | undefined): void {
    const { id, name } = sheet;
    Object.assign(sheet, { id: identifier(), version: 0 });
    if (other) {
      sheet.name = copyName(name, this.list.map((one) => one.name));
      this.list.push(other);
    }
    this.progress.say((other ? t.workbook.conflictInTab : t.workbook.goneInTab)(name, sheet.name), true);
    if (sheet === this.current) noteIdentity(id, sheet.id);
    this.listSheets();
  }

  /** Both this browser and another machine changed a sheet: it is theirs now, `copy` has what was done here. */
  private async goOnAsServersCopy(id: string, copy: StoredSheet, words: string): Promise<void> {
    // What the grid shows is the copy already: it goes on under that name, with the selection and what is half typed. Where
    // something is not in the store yet, its own write comes second as well, and makes a copy that has it.
    if (id === this.current.id && !this.writer?.hasUnsaved(this.current)) {
      Object.assign(this.current, { id: copy.id, name: copy.name, version: copy.version });
      noteIdentity(id, copy.id);
    } else this.list.push(copy);
    this.otherTabs.postMessage(copy.id);
    this.otherTabs.postMessage(id);
    await this.onOtherTab(id, words);
    this.listSheets();
    this.progress.say(words, true);
  }

  /** Has the server keep the open sheet with the last edit; gives whether there is anything to keep, and throws where that failed. */
  private async keepNow(): Promise<boolean> {
    clearTimeout(this.saveTimer);
    const { current } = this;
    this.tabs.store(current);
    await this.writer?.save(current);
    return (await this.keeping?.keep(current.id)) === true;
  }

  /** Goes back to an older version of the open sheet, by an edit like any other; what is there now stays a version. */
  private async restore(older: StoredSheet): Promise<void> {
    await this.keeping?.closeVersion(older.id);
    // Another machine may have put another sheet here meanwhile.
    if (older.id !== this.current.id) return;
    this.goTo(older);
  }

  /** The open workbook as it stands; gives what goes back to it, to the sheet at a place, until something is edited. */
  private snapshot(place: number): () => void {
    this.tabs.store(this.current);
    const before = structuredClone(this.current);
    return () => {
      noteTab(this.current.id, place);
      this.goTo(before);
      this.progress.say(t.workbook.back);
    };
  }

  /** Has the open workbook be what it was, by an edit. */
  private goTo(older: StoredSheet): void {
    this.current.name = older.name;
    keepSheets(this.current, sheetsIn(older));
    if (this.current.model !== older.model) {
      keepModel(this.current, older.model);
      this.asksOther();
    }
    if (!this.session || !this.tabs.adopt(this.current, this.session)) this.show(this.current);
    this.describe(false);
    this.listSheets();
    this.edited();
  }

  private select(row: number, column: number): void {
    this.selected = [row, column];
    this.describe(true);
  }

  private describe(aloud: boolean): void {
    const { name, raw, behind, spoken, note } = this.grid.describe(...this.selected);
    this.name.value = name;
    if (!this.grid.isEditing) this.bar.show(raw, behind);
    this.note.value = note;
    this.note.title = note;
    if (aloud) this.spoken.textContent = spoken;
    if (aloud) {
      this.tools.select();
      this.inspector.show();
    }
    this.sumUp();
  }

  /** Says why a formula that was just typed fails: its cell is left, and has a code alone. */
  private explain([change, ...others]: readonly Change[]): void {
    if (!change || others.length > 0 || !isFormula(change.raw)) return;
    const value = this.session?.sheet.value(change.row, change.column);
    if (value instanceof CellError) this.progress.say(t.workbook.formulaFails(cellName(change.row, change.column), value.note));
  }

  private sumUp(): void {
    this.summary.show(this.session?.sheet, this.grid.selection(), (row) => this.grid.isHidden(row));
  }

  /** Whether nothing was typed yet. */
  private isEmpty(): boolean {
    return this.session?.book.members.every(({ sheet }) => sheet.extent().rows === 0) === true;
  }

  private inspect(): Inspected {
    const { session } = this;
    if (!session) return { name: "", about: "", formula: "", error: "", lines: [], again: "", prompts: undefined };
    return this.inspection.of(session, this.tabs.origins, ...this.selected);
  }

  private keys(event: KeyboardEvent): void {
    if (document.querySelector("dialog:modal")) return;
    const inField = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
    if (event.key === "F6") {
      if (this.grid.hasKeys) this.bar.focus();
      else this.grid.focus();
    } else if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "d" && !inField) {
      this.grid.fillDown();
    } else if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "i" && !inField) {
      this.inspector.open();
    } else if (!this.tools.key(event)) return;
    event.preventDefault();
  }

  private bookBar(): BookBar {
    return new BookBar({
      opened: (id) => this.openBook(id),
      created: () => this.add(newSheet(this.freeName())),
      renamed: (name) => this.rename(name),
      deleted: () => void this.remove(),
      begun: (template) => this.begin(template),
      model: () => this.answering.current,
      read: (file) => void this.transfer.importFile(file),
      csv: () => this.transfer.exportCsv(),
      xlsx: () => void this.transfer.exportXlsx(),
      left: () => this.grid.focus(),
    }, TEMPLATES, TITLE_MAX);
  }

  private buttons(): void {
    new Toolbar(() => {
      this.bar.take();
      this.grid.finishEdit();
    });
    onClick("undo", () => this.grid.undo());
    onClick("redo", () => this.grid.redo());
    onClick("fill", () => this.grid.fillDown());
    onClick("rows", () => this.grid.addRows(100));
    onClick("retry", () => this.retry());
    onClick("stop", () => this.session?.stop());
    onClick("pause", () => (this.session?.isPaused ? this.session.resume() : this.session?.pause()));
  }

  /** Has the open workbook ask the model of a name, or the server's default one. */
  private choose(name: string | undefined): void {
    keepModel(this.current, name);
    this.asksOther();
    this.edited();
  }

  /** The open workbook asks another model than before. */
  private asksOther(): void {
    this.answering.choose(this.current.model);
    this.session?.modelChanged();
  }

  private rename(name: string): void {
    this.current.name = name;
    this.listSheets();
    this.edited();
  }

  private async remove(): Promise<void> {
    const gone = this.current;
    if (!(await confirmedDeletion(t.workbook.deleteTitle(gone.name)))) return;
    if (!this.list.includes(gone)) return;
    if (gone === this.current) this.tabs.store(gone);
    // Another one with all that is in it: other machines have been told that the first is gone.
    const back = { ...structuredClone(gone), id: identifier(), version: 0 };
    this.drop(gone, "");
    this.progress.offer(t.workbook.deleted(gone.name), () => this.add(back));
    await this.store?.remove(gone.id);
    this.otherTabs.postMessage(gone.id);
    this.keeping?.soon();
  }

  /** Takes a sheet off the list, and shows the next where it was the open one. */
  private drop(gone: StoredSheet, words: string): void {
    this.writer?.forget(gone);
    this.list = this.list.filter((sheet) => sheet !== gone);
    if (gone !== this.current) return;
    const [next] = this.list;
    if (next) this.show(next);
    else this.add(newSheet(t.workbook.name(1)));
    this.progress.say(words);
  }
}
