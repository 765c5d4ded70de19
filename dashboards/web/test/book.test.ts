// Workbooks of several sheets: what reads another sheet, and what is kept of them.

import { AnswerCache } from "relserve-client/answer-cache";
import { noUsage } from "relserve-client/usage";
import { type CellError, shown } from "relserve-client/value";
import { expect, test } from "vitest";

import { keepSheets, refuseName, sheetsIn } from "../src/app/tabs";
import { cellId } from "../src/core/address";
import { follow, followElsewhere, rearrange } from "../src/core/arrange";
import { Book, type BookCell, type Member } from "../src/core/book";
import type { StoredOrigins } from "../src/core/origins";
import { renameSheet, rewrite, sheetText } from "../src/core/references";
import { shift } from "../src/core/shift";
import type { FurtherSheet, StoredSheet } from "../src/store/sheets";

function bookOf(...names: string[]): { book: Book; members: Member[]; wants: Map<BookCell, number> } {
  const wants = new Map<BookCell, number>();
  const book = new Book(new AnswerCache(), (cell, calls) => wants.set(cell, calls.size), () => Number.NaN);
  return { book, members: names.map((name) => book.add(name)), wants };
}

const type = (member: Member | undefined, cells: Record<string, string>) =>
  member?.sheet.set(Object.entries(cells).map(([name, raw]) => ({ row: Number(name.slice(1)) - 1, column: name.charCodeAt(0) - 65, raw })));
const read = (member: Member | undefined, row = 0, column = 0) => shown(member?.sheet.value(row, column) ?? null);

test("a formula reads other sheets, in quotes and without, and follows them through a third", () => {
  const { book, members: [a, b, c] } = bookOf("Data", "My sheet", "Übersicht");
  type(c, { A1: "='My sheet'!A1*2", A2: "=SUM('my SHEET'!A1:B1)", A3: "=COUNTA(Data!A:A)" });
  type(b, { A1: "=Data!A1+1", B1: "=SUM(Data!A1:A2)" });
  type(a, { A1: "10", A2: "5" });
  book.recalculate();
  expect([read(b), read(b, 0, 1), read(c), read(c, 1), read(c, 2)]).toEqual(["11", "15", "22", "26", "2"]);
  type(a, { A1: "20" });
  const changed = book.recalculate();
  expect([read(c), read(c, 1)]).toEqual(["42", "46"]);
  expect(changed.get(c as Member)?.has(cellId(0, 0))).toBe(true);
  type(a, { B1: "=Data!A1+Übersicht!A1" });
  book.recalculate();
  expect(read(a, 0, 1)).toBe("62");
});

test("a circle through two sheets is an error, and heals", () => {
  const { book, members: [a, b] } = bookOf("A", "B");
  type(a, { A1: "=B!A1+1", B1: "=B!B1" });
  type(b, { A1: "=A!A1+1", B1: "7" });
  book.recalculate();
  expect([read(a), read(a, 0, 1)]).toEqual(["#REF!", "7"]);
  type(b, { A1: "1" });
  book.edited();
  book.recalculate();
  expect([read(a), read(b)]).toEqual(["2", "1"]);
});

test("a large circle ends soon, and is not gone around again for what is no formula", () => {
  const { book, members: [a, b, c] } = bookOf("A", "B", "C");
  const column = (member: Member | undefined, raw: (row: number) => string) =>
    member?.sheet.set(Array.from({ length: 500 }, (_, row) => ({ row, column: 0, raw: raw(row + 1) })));
  column(a, (row) => `=B!A${row}+1`);
  column(b, (row) => `=A!A${row}+1`);
  type(c, { A1: "=COUNT(A!A1:A500)", A2: "5" });
  let computed = 0;
  for (const member of [a, b]) {
    const { area } = member?.sheet as unknown as { area: (area: unknown) => unknown };
    Object.assign(member?.sheet as object, { area: (asked: unknown) => {
      computed += 1;
      return area.call(member?.sheet, asked);
    } });
  }
  book.edited();
  book.recalculate();
  expect([read(a), read(b, 499), read(c)]).toEqual(["#REF!", "#REF!", "0"]);
  expect(computed).toBeLessThan(10 * 500);
  computed = 0;
  type(c, { A2: "6" });
  book.edited();
  book.recalculate();
  expect(computed).toBe(0);
});

test("what changes in one sheet is looked for once in a range that many formulas of another read, and not cell by cell", () => {
  const { book, members: [a, b] } = bookOf("A", "B");
  a?.sheet.set(Array.from({ length: 3_000 }, (_, row) => ({ row, column: 3, raw: String(row) })));
  b?.sheet.set(Array.from({ length: 3_000 }, (_, row) => ({ row, column: 0, raw: row % 2 ? "=SUM(A!A:B)" : `=A!D${row + 1}` })));
  book.recalculate();
  expect([read(b, 2_998), read(b, 2_999)]).toEqual(["2998", "0"]);
  const changed = new Set(Array.from({ length: 3_000 }, (_, row) => cellId(row, 3)));
  let looked = 0;
  const counted = Object.assign(changed, { [Symbol.iterator]: () => {
    looked += 1;
    return Set.prototype.values.call(changed);
  } });
  expect(b?.sheet.touchReaders("A", counted)).toBe(true);
  expect(looked).toBe(1);
});

test("a sheet that is not there is an error, until it is; its cells wait under numbers of their own", () => {
  const { book, members: [a], wants } = bookOf("A");
  type(a, { A1: "=Later!A1" });
  book.recalculate();
  expect(read(a)).toBe("#REF!");
  const later = book.add("Later");
  type(later, { A1: "3", B1: '=AI.CLASSIFY(A1, "a, b")' });
  type(a, { B1: '=AI.CLASSIFY("x", "a, b")' });
  book.recalculate();
  expect(read(a)).toBe("3");
  expect([...wants].filter(([, calls]) => calls > 0).length).toBe(2);
  book.rename(later, "Now");
  book.recalculate();
  expect(read(a)).toBe("#REF!");
  book.remove(later);
  expect([...wants].filter(([, calls]) => calls > 0).length).toBe(1);
});

test("references name their sheet through copying, inserting, sorting and renaming", () => {
  expect(shift("=Data!A1+A1+'My sheet'!$B$2", 1, 1)).toBe("=Data!B2+B2+'My sheet'!$B$2");
  const edit = { kind: "insert", axis: "row", at: 0, count: 1 } as const;
  expect(follow("=A1+Data!A1", edit)).toBe("=A2+Data!A1");
  expect(rearrange([{ row: 5, column: 0, raw: "=A1+Own!A1+Data!A1" }], edit, "Own").find(({ row }) => row === 6)?.after).toBe("=A2+Own!A2+Data!A1");
  expect(followElsewhere([{ row: 0, column: 0, raw: "=A1+data!A1:A3" }, { row: 1, column: 0, raw: "=A1" }], edit, "Data"))
    .toEqual([{ row: 0, column: 0, before: "=A1+data!A1:A3", after: "=A1+data!A2:A4" }]);
  expect(renameSheet('="Data!A1"&Data!A1&\'Data\'!B:B', "data", "It's new")).toBe(`="Data!A1"&'It''s new'!A1&'It''s new'!B:B`);
  expect(renameSheet("=Data!A1+1", "Data", undefined)).toBe("=#REF!+1");
  expect([sheetText("Data"), sheetText("A1"), sheetText("Über"), sheetText("a b")]).toEqual(["Data", "'A1'", "Über", "'a b'"]);
  expect(rewrite("=Data!A1", (reference) => reference)).toBe("=Data!A1");
});

test("a workbook of before opens, and one sheet alone is kept as it was", () => {
  const old: StoredSheet = { id: "1", name: "Old", rows: [["a"]], widths: [100], usage: noUsage(), updated: 1, version: 3 };
  const sheets = sheetsIn(structuredClone(old));
  expect(sheets).toEqual([{ name: "Sheet1", rows: [["a"]], widths: [100] }]);
  const origins: StoredOrigins = [[cellId(0, 0), "=AI.RATE(B1)", "0"]];
  expect(sheetsIn({ ...old, origins })).toEqual([{ ...sheets[0], origins }]);
  const known = structuredClone(old);
  keepSheets(known, [{ ...(sheets[0] as FurtherSheet), origins }]);
  expect(known).toEqual({ ...old, origins });
  keepSheets(known, sheets);
  expect(known).toEqual(old);
  const kept = structuredClone(old);
  keepSheets(kept, sheets);
  expect(kept).toEqual(old);
  const more = [...sheets, { name: "Two", rows: [["b"]], widths: [], layout: { frozenRows: 1 } }];
  keepSheets(kept, more);
  expect([kept.rows, kept.first, kept.further?.length]).toEqual([[["a"]], "Sheet1", 1]);
  expect(sheetsIn(structuredClone(kept))).toEqual(more);
});

test("names that a formula could not hold are refused", () => {
  expect(refuseName("Totals", ["Sheet1"])).toBe("");
  for (const name of ["", "sheet1", "a/b", "'x", "n".repeat(32)]) expect(refuseName(name, ["Sheet1"])).not.toBe("");
});

test("a formula of thousands of steps is refused in words, however it nests, and stops no other", () => {
  const { book, members: [a] } = bookOf("A");
  const sum = (terms: number) => Array(terms).fill("1").join("+");
  type(a, {
    A1: `=${sum(4_000)}`, A2: `=1${"%".repeat(8_000)}`, A3: `=((${sum(900)})+${sum(900)})+${sum(900)}`, A4: `=${sum(900)}`, A5: "=A1&A4",
  });
  book.recalculate();
  expect([read(a), read(a, 1), read(a, 2), read(a, 3), read(a, 4)]).toEqual(["#ERROR!", "#ERROR!", "#ERROR!", "900", "#ERROR!"]);
  expect((a?.sheet.value(0, 0) as CellError).note).toMatch(/more than 1,000 steps/);
});
