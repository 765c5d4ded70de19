// Browsers that keep their sheets on one server: a server of versions, and browsers with stores of their own.

import { noUsage } from "relserve-client/usage";
import { expect, test } from "vitest";

import {
  type LocalSheets, type SaveOptions, type SaveOutcome, type SyncMark, type SyncMarks, type WorkbookContent, type WorkbookRead, type WorkbookServer,
  WorkbookSync, contentOf, sheetOf,
} from "../src/app/workbook-sync";
import { keepModel } from "../src/app/tabs";
import { readable } from "../src/app/workbook-content";
import { type StoredSheet, newSheet } from "../src/store/sheets";

/** A server that keeps the newest versions. */
class Server implements WorkbookServer {
  readonly kept = new Map<string, WorkbookRead>();
  isAway = false;
  /** What is said of the sheet "S" in place of saving it. */
  refusal: string | undefined;
  /** Whether the reply to the next save is lost on its way. */
  losesReply = false;
  saves = 0;

  list = async () => {
    this.answer();
    return [...this.kept].map(([id, { name, version }]) => ({ id, name, version }));
  };
  read = async (id: string) => {
    this.answer();
    return structuredClone(this.kept.get(id));
  };
  /** Versions that were closed. */
  readonly closed: number[] = [];
  save = async (
    id: string, name: string, content: WorkbookContent, base: number, { closesVersion = false }: SaveOptions = {},
  ): Promise<SaveOutcome> => {
    this.answer();
    if (this.refusal && name === "S") throw new Error(this.refusal);
    const there = this.kept.get(id);
    if (!there && base > 0) return "gone";
    if ((there?.version ?? 0) !== base) return "stale";
    this.saves += 1;
    if (closesVersion) this.closed.push(base + 1);
    const version = (there?.version ?? this.deleted.get(id) ?? 0) + 1;
    this.kept.set(id, { name, version, content: structuredClone(content) });
    if (this.losesReply) {
      this.losesReply = false;
      throw new Error("the connection broke");
    }
    return { version };
  };
  /** The last versions of what was deleted. */
  private readonly deleted = new Map<string, number>();
  /** What another browser does between this one's look and its deletion. */
  beforeRemoval = async (): Promise<void> => {};
  remove = async (id: string, version: number) => {
    this.answer();
    await this.beforeRemoval();
    if (this.kept.get(id)?.version !== version) return;
    this.deleted.set(id, version);
    this.kept.delete(id);
  };

  cells(): Record<string, string> {
    return Object.fromEntries([...this.kept.values()].map(({ name, content }) => [name, content.rows.flat().join()]));
  }

  private answer(): void {
    if (this.isAway) throw new Error("the server cannot be reached");
  }
}

/** A browser with its own stores. */
class Browser implements LocalSheets {
  readonly sheets = new Map<string, StoredSheet>();
  readonly told: string[] = [];
  readonly sync: WorkbookSync;
  state = "";
  private readonly kept = new Map<string, SyncMark>();
  private readonly marks: SyncMarks = {
    all: async () => structuredClone([...this.kept.values()]),
    put: async (mark) => void this.kept.set(mark.id, mark),
    remove: async (id) => void this.kept.delete(id),
  };
  private count = 0;

  constructor(server: Server, name = "b", sheetsMax = 5) {
    this.sync = new WorkbookSync(server, this, this.marks, {
      changed: (_, words) => words && this.told.push(words),
      conflicted: (_id, _copy, words) => this.told.push(words),
      nameTaken: (id, free) => {
        const sheet = this.sheets.get(id);
        if (!sheet || !this.canRename) return false;
        this.sheets.set(id, { ...sheet, name: free, version: sheet.version + 1 });
        return true;
      },
      said: (words) => this.told.push(words),
      shown: () => undefined,
      state: (problem) => {
        this.state = problem;
      },
    }, {
      now: () => 1,
      identifier: () => `${name}${(this.count += 1)}`,
      noUsage,
      alone: (run) => run(),
      sheetsMax,
    });
  }

  /** Whether the page has the sheets that the sync would have another name for. */
  canRename = true;
  reads = 0;
  list = async () => {
    this.reads += 1;
    return structuredClone([...this.sheets.values()]);
  };
  isFull: (sheet: StoredSheet) => boolean = () => false;
  put = async (sheet: StoredSheet, base: number) => {
    if (this.isFull(sheet)) throw new Error("QuotaExceededError");
    if ((this.sheets.get(sheet.id)?.version ?? 0) !== base) return false;
    this.sheets.set(sheet.id, structuredClone(sheet));
    return true;
  };
  remove = async (id: string) => void this.sheets.delete(id);

  /** Types a text into the sheet of a name, which is made where there is none. */
  type(name: string, text: string): StoredSheet {
    const there = [...this.sheets.values()].find((sheet) => sheet.name === name) ?? newSheet(name);
    const typed = { ...there, rows: [[text]], version: there.version + 1 };
    this.sheets.set(typed.id, typed);
    return typed;
  }

  cells(): Record<string, string> {
    return Object.fromEntries([...this.sheets.values()].map(({ name, rows }) => [name, rows.flat().join()]));
  }
}

test("a second browser sees what the first typed, and each other's edits", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server), new Browser(server)];
  one.type("S", "a");
  await one.sync.run();
  await other.sync.run();
  expect(other.cells()).toEqual({ S: "a" });
  other.type("S", "b");
  await other.sync.run();
  await one.sync.run();
  expect([one.cells(), one.told]).toEqual([{ S: "b" }, ['"S" was changed elsewhere: this is its version.']]);
  await one.sync.run();
  await other.sync.run();
  expect(server.saves).toBe(2);
});

test("a workbook goes with all of its sheets, also where its first has nothing in it", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server), new Browser(server)];
  const book = newSheet("Book");
  const further = [{ name: "Prices", rows: [["3", "=A1+1"]], widths: [80], layout: { frozenRows: 1 } }];
  one.sheets.set(book.id, { ...book, first: "Summary", further, version: 1 });
  await one.sync.run();
  await other.sync.run();
  expect(other.sheets.get(book.id)).toMatchObject({ name: "Book", rows: [], first: "Summary", further });
  await one.sync.run();
  expect(server.saves).toBe(1);
});

test("where both changed a sheet both are kept, under two names", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server, "x"), new Browser(server, "y")];
  one.type("S", "a");
  await one.sync.run();
  await other.sync.run();
  one.type("S", "one");
  other.type("S", "other");
  await one.sync.run();
  await other.sync.run();
  expect(other.told).toEqual(['"S" was changed elsewhere too: what you did here goes on as "S (copy)".']);
  expect(other.cells()).toEqual({ S: "one", "S (copy)": "other" });
  await one.sync.run();
  expect(one.cells()).toEqual({ S: "one", "S (copy)": "other" });
  expect(server.cells()).toEqual({ S: "one", "S (copy)": "other" });
});

test("without a server everything goes on, and it has all of it once it is back", async () => {
  const server = new Server();
  const browser = new Browser(server);
  server.isAway = true;
  browser.type("S", "a");
  await browser.sync.run();
  expect(browser.state).toBe("the server cannot be reached");
  browser.type("S", "b");
  server.isAway = false;
  await browser.sync.run();
  expect([server.cells(), browser.state]).toEqual([{ S: "b" }, ""]);
});

test("a save whose reply was lost is no conflict", async () => {
  const server = new Server();
  const browser = new Browser(server);
  server.losesReply = true;
  browser.type("S", "a");
  await browser.sync.run();
  expect(browser.state).toBe("the connection broke");
  await browser.sync.run();
  expect([browser.cells(), server.cells(), browser.told, browser.state]).toEqual([{ S: "a" }, { S: "a" }, [], ""]);
  browser.type("S", "b");
  await browser.sync.run();
  expect(server.cells()).toEqual({ S: "b" });
});

test("a refusal is told and keeps no other sheet from the server", async () => {
  const server = new Server();
  const browser = new Browser(server);
  server.refusal = "what the tenant keeps in workbooks exceeds the limit of 9 bytes (workbooks.tenant_bytes_max)";
  browser.type("S", "a");
  browser.type("T", "t");
  await browser.sync.run();
  expect([browser.state, browser.cells(), server.cells()]).toEqual([server.refusal, { S: "a", T: "t" }, { T: "t" }]);
  server.refusal = undefined;
  await browser.sync.run();
  expect([browser.state, server.cells()]).toEqual(["", { T: "t", S: "a" }]);
});

test("a deletion goes everywhere, but not over an edit", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server), new Browser(server)];
  const sheet = one.type("S", "a");
  one.type("T", "t");
  await one.sync.run();
  await other.sync.run();
  one.sheets.delete(sheet.id);
  await one.sync.run();
  expect(server.cells()).toEqual({ T: "t" });
  await other.sync.run();
  expect([other.cells(), other.told]).toEqual([{ T: "t" }, ['"S" was deleted elsewhere.']]);

  const [last] = [...one.sheets.values()];
  one.sheets.delete(last?.id ?? "");
  other.type("T", "edited");
  await one.sync.run();
  await other.sync.run();
  expect([server.cells(), other.cells()]).toEqual([{ T: "edited" }, { T: "edited" }]);
  expect(other.told.slice(1)).toEqual(['"T" was deleted elsewhere; it is kept, since you changed it.']);

  const [again] = [...other.sheets.values()];
  await one.sync.run();
  other.sheets.delete(again?.id ?? "");
  one.type("T", "changed");
  await one.sync.run();
  await other.sync.run();
  expect(other.cells()).toEqual({ T: "changed" });
  expect(other.told.at(-1)).toBe('"T" was changed elsewhere after it was deleted here: it is back.');
});

test("what was deleted and made anew is not taken for what it was", async () => {
  const server = new Server();
  const [one, other, third] = [new Browser(server, "x"), new Browser(server, "y"), new Browser(server, "z")];
  const { id } = one.type("S", "a");
  for (const browser of [one, other, third]) await browser.sync.run();
  one.sheets.delete(id);
  await one.sync.run();
  other.type("S", "made anew");
  await other.sync.run();
  third.type("S", "third");
  await third.sync.run();
  expect(third.cells()).toEqual({ S: "made anew", "S (copy)": "third" });
  expect(server.cells()).toMatchObject({ S: "made anew" });
});

test("what is saved while it is being deleted elsewhere stays", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server, "x"), new Browser(server, "y")];
  const { id } = one.type("S", "a");
  for (const browser of [one, other]) await browser.sync.run();
  one.sheets.delete(id);
  other.type("S", "b");
  server.beforeRemoval = () => other.sync.run();
  await one.sync.run();
  expect(server.cells()).toEqual({ S: "b" });
  await one.sync.run();
  expect(one.cells()).toEqual({ S: "b" });
});

test("a version can be closed, edited since or not, and only by a server that is there", async () => {
  const server = new Server();
  const browser = new Browser(server);
  const { id } = browser.type("S", "a");
  await browser.sync.closeVersion(id);
  expect(server.closed).toEqual([1]);
  await browser.sync.run();
  expect(server.saves).toBe(1);
  // A run that goes on has read the sheets already.
  void browser.sync.run();
  await browser.sync.closeVersion(id);
  expect(server.closed).toEqual([1, 2]);
  server.isAway = true;
  await expect(browser.sync.closeVersion(id)).rejects.toThrow("the server cannot be reached");
  server.isAway = false;
  browser.type("S", "b");
  await browser.sync.run();
  expect([server.closed, server.cells()]).toEqual([[1, 2], { S: "b" }]);
});

test("a sheet is kept when it is asked for: an empty one is nothing to keep, and where it failed the reason is told", async () => {
  const server = new Server();
  const browser = new Browser(server);
  const { id: blank } = browser.type("Blank", "");
  expect([await browser.sync.keep(blank), server.saves]).toEqual([false, 0]);
  const { id } = browser.type("S", "a");
  expect([await browser.sync.keep(id), server.cells()]).toEqual([true, { S: "a" }]);
  // A run that goes on has read the sheets already.
  void browser.sync.run();
  browser.type("S", "b");
  expect([await browser.sync.keep(id), server.cells()]).toEqual([true, { S: "b" }]);
  server.refusal = "it is too large";
  browser.type("S", "c");
  await expect(browser.sync.keep(id)).rejects.toThrow("it is too large");
  server.refusal = undefined;
  browser.type("S", "");
  expect(await browser.sync.keep(id), "one that the server had is kept as it is, empty").toBe(true);
});

test("what is of a browser alone does not go to the server", () => {
  const sheet = { ...newSheet("S", [["a"]], [80]), version: 7, calledOff: ["0"] };
  expect(contentOf(sheet, [{ name: "Sheet1", rows: [["A"]] }])).toEqual({
    rows: [["a"]], widths: [80], shown: [{ name: "Sheet1", rows: [["A"]] }],
  });
  const read = { name: "S", version: 2, content: { rows: [["b"]], widths: [], calledOff: "of another" } };
  expect([sheetOf("S", read, sheet, 0).calledOff, sheetOf("S", read, newSheet("S"), 0).calledOff]).toEqual([["0"], undefined]);
});

test("a browser takes no more sheets than it keeps", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server), new Browser(server)];
  for (let number = 0; number < 5; number += 1) one.type(`S${number}`, "a");
  await one.sync.run();
  other.type("Own", "b");
  await other.sync.run();
  expect(other.sheets.size).toBe(5);
  expect(server.kept.size).toBe(6);
});

test("what was sent when the page was left is no conflict for what is typed when it is seen again", async () => {
  const server = new Server();
  const browser = new Browser(server);
  browser.type("S", "a");
  await browser.sync.run();
  await browser.sync.flush({ ...browser.type("S", "ab"), version: 1 });
  browser.type("S", "abc");
  await browser.sync.run();
  expect([browser.cells(), server.cells(), browser.told]).toEqual([{ S: "abc" }, { S: "abc" }, []]);
  server.losesReply = true;
  browser.type("S", "abcd");
  await browser.sync.run();
  browser.type("S", "abcde");
  await browser.sync.run();
  expect([browser.cells(), server.cells(), browser.told]).toEqual([{ S: "abcde" }, { S: "abcde" }, []]);
});

test("a browser that cannot take the server's version leaves no copy behind for each time that it tries", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server, "x"), new Browser(server, "y")];
  one.type("S", "a");
  await one.sync.run();
  await other.sync.run();
  one.type("S", "one");
  other.type("S", "other");
  await one.sync.run();
  other.isFull = (sheet) => sheet.rows[0]?.[0] === "one";
  await other.sync.run();
  await other.sync.run();
  expect([other.cells(), other.state]).toEqual([{ S: "other" }, "QuotaExceededError"]);
  other.isFull = () => false;
  await other.sync.run();
  expect(other.cells()).toEqual({ S: "one", "S (copy)": "other" });
});

test("a workbook that no page saved is told, and stops neither the page nor the others", () => {
  const sheet = { name: "S", content: { rows: [["a"]], widths: [130] } };
  expect(readable(sheet)).toBe(sheet);
  const area = { row: 0, column: 0, rowEnd: 1, columnEnd: 0 };
  const layout = { formats: [{ ...area, code: "0" }], filters: [{ column: 0, hidden: ["a"], criterion: "" }], charts: [{ kind: "pie", title: "T", area }] };
  const whole = { ...sheet.content, layout, first: "One", further: [{ ...sheet.content, name: "Two" }], origins: [[1, "", "f"]], shown: [{ name: "One", rows: [["a"]] }] };
  expect(readable({ name: "S", content: whole }).content).toBe(whole);
  for (const odd of [
    undefined, {}, { rows: [[1]], widths: [] }, { rows: ["a"], widths: [] }, { ...sheet.content, further: [{ rows: [], widths: [] }] },
    { ...sheet.content, layout: { formats: {} } }, { ...sheet.content, layout: { charts: [{ kind: "map", title: "", area }] } },
    { ...sheet.content, rows: Array.from({ length: 20_001 }, () => []) }, { ...sheet.content, origins: [[1]] },
  ]) {
    expect(() => readable({ name: "S", content: odd }), JSON.stringify(odd)?.slice(0, 80)).toThrow(/"S" was not saved by this page/);
  }
});

test("a look reads no sheet while nothing is new, and finds what is; a server that went is told and looked for", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server, "x"), new Browser(server, "y")];
  one.type("S", "a");
  await one.sync.run();
  // What it saved itself is new to it once.
  await one.sync.look();
  const { reads } = one;
  await one.sync.look();
  await one.sync.look();
  expect(one.reads).toBe(reads);
  await other.sync.run();
  other.type("S", "b");
  await other.sync.run();
  await one.sync.look();
  expect(one.cells()).toEqual({ S: "b" });
  server.isAway = true;
  await one.sync.look();
  expect(one.state).toBe("the server cannot be reached");
  server.isAway = false;
  await one.sync.look();
  expect(one.state).toBe("");
});

test("whatever is typed, lost on its way or sent twice, no text is lost and all browsers end alike", async () => {
  for (let seed = 1; seed <= 80; seed += 1) {
    let state = seed * 7_919 + 13;
    const random = (most: number) => (state = (state * 48_271) % 2_147_483_647) % most;
    const server = new Server();
    const browsers = ["x", "y", "z"].map((name) => new Browser(server, name, 500));
    const typed: string[] = [];
    const typeInto = (browser: Browser) => {
      const sheets = [...browser.sheets.values()];
      const sheet = random(5) > 0 ? sheets[random(sheets.length || 1)] : undefined;
      const text = `text ${typed.push("")}`;
      typed[typed.length - 1] = text;
      const { version, rows, ...rest } = sheet ?? newSheet(`S${random(3)}`);
      const after = { ...rest, rows: [...rows, [text]], version: version + 1 };
      browser.sheets.set(after.id, after);
      return { ...after, version };
    };
    for (let i = 0; i < 50; i += 1) {
      const browser = browsers[random(3)] as Browser;
      const running = random(2) > 0 ? browser.sync.run() : undefined;
      if (random(3) > 0) typeInto(browser);
      if (random(8) === 0) await browser.sync.flush(typeInto(browser)).catch(() => undefined);
      if (random(8) === 0) server.losesReply = true;
      if (random(8) === 0) server.isAway = !server.isAway;
      await running;
    }
    server.isAway = server.losesReply = false;
    for (let round = 0; round < 6; round += 1) for (const { sync } of browsers) await sync.run();
    const there = Object.fromEntries([...server.kept].map(([id, { name, content }]) => [id, [name, content.rows]]));
    for (const { sheets, state: problem } of browsers) {
      expect(problem, `seed ${seed}`).toBe("");
      expect(Object.fromEntries([...sheets].map(([id, { name, rows }]) => [id, [name, rows]])), `seed ${seed}`).toEqual(there);
    }
    const kept = new Set([...server.kept.values()].flatMap(({ content }) => content.rows.flat()));
    expect(typed.filter((text) => !kept.has(text)), `seed ${seed}`).toEqual([]);
  }
});

test("the model that a workbook asks is kept with it, on the server too", () => {
  const sheet = newSheet("S", [["a"]]);
  keepModel(sheet, "large");
  const content = contentOf(sheet, undefined);
  expect(content).toMatchObject({ model: "large" });
  const there = { name: "S", version: 1, content };
  expect(sheetOf("s", readable(there), sheet, 0).model).toBe("large");
  expect(() => readable({ ...there, content: { ...content, model: 3 } })).toThrow(/S/);
  keepModel(sheet, undefined);
  expect(Object.keys(contentOf(sheet, undefined))).not.toContain("model");
});

test("a new workbook gets the next free name, also where another machine was first; a chosen name stays", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server, "x"), new Browser(server, "y")];
  one.type("Workbook 1", "one");
  one.type("Workbook 2", "two");
  one.type("Budget", "three");
  await one.sync.run();
  other.type("Workbook 1", "other");
  other.type("Budget", "mine");
  await other.sync.run();
  await other.sync.run();
  expect([...server.kept.values()].map(({ name }) => name).sort()).toEqual(["Budget", "Budget", "Workbook 1", "Workbook 2", "Workbook 3"]);
  expect(server.cells()).toMatchObject({ "Workbook 1": "one", "Workbook 3": "other" });
  // One that the server has keeps its name, whatever comes.
  other.type("Workbook 3", "again");
  one.type("Workbook 3", "late");
  for (const { sync } of [other, one, one]) await sync.run();
  expect(server.cells()).toMatchObject({ "Workbook 3": "again", "Workbook 4": "late" });
});

test("a sheet of another tab, which this page cannot rename, is saved as it is", async () => {
  const server = new Server();
  const [one, other] = [new Browser(server, "x"), new Browser(server, "y")];
  one.type("Workbook 1", "one");
  await one.sync.run();
  other.canRename = false;
  other.type("Workbook 1", "other");
  await other.sync.run();
  expect(server.kept.size).toBe(2);
});
