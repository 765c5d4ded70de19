// Ranges that many formulas read: read once, and never out of date.

import { AnswerCache } from "relserve-client/answer-cache";
import { shown } from "relserve-client/value";
import { expect, test, vi } from "vitest";

import { Ranges } from "../src/core/ranges";
import { type Change, Sheet } from "../src/core/sheet";

const opened = () => new Sheet(new AnswerCache(), () => undefined);

test("a column of formulas over one range, and a running total, read each cell a few times and not once a formula", () => {
  const rows = 2_000;
  for (const formula of [() => "=SUM(A:A)", () => "=SUM(A$1:A2000)", (row: number) => `=SUM(A$1:A${row + 1})`, () => "=MEDIAN(A:A)*2"]) {
    const sheet = opened();
    const read = vi.spyOn(sheet, "value");
    sheet.set(Array.from({ length: rows }, (_, row) => [{ row, column: 0, raw: String(row) }, { row, column: 1, raw: formula(row) }]).flat());
    sheet.recalculate();
    sheet.set([{ row: 0, column: 0, raw: "5" }]);
    sheet.recalculate();
    expect(read.mock.calls.length, formula(0)).toBeLessThan(5 * rows);
  }
});

test("values are kept by where a range begins, down to the cell that changed", () => {
  const read: string[] = [];
  const ranges = new Ranges((row, column) => (read.push(`${row},${column}`), row));
  const area = { row: 0, rowEnd: 99, column: 1, columnEnd: 2 };
  expect(ranges.numbers(area).list.length).toBe(200);
  expect(ranges.matrix({ ...area, rowEnd: 49 })[49]).toEqual([49, 49]);
  expect(ranges.numbers({ ...area, rowEnd: 49 }).list.length).toBe(100);
  expect(read.length).toBe(200);
  ranges.changed(1024 * 90 + 3);
  ranges.numbers(area);
  expect(read.length).toBe(200);
  ranges.changed(1024 * 90 + 2);
  ranges.numbers(area);
  expect(read.length).toBe(220);
});

test("numbers of a range far longer than what a call takes as arguments", () => {
  const sheet = opened();
  const typed: Change[] = Array.from({ length: 150_000 }, (_, i) => ({ row: i % 15_000, column: Math.floor(i / 15_000), raw: String(i % 7) }));
  const formulas = ["=SUM(A:J)", "=MAX(A:J)", "=AVERAGE(A1:J14)", "=MEDIAN(A:J)", "=SMALL(A:J,2)", "=ROUND(STDEV(A:J),6)"];
  sheet.set([...typed, ...formulas.map((raw, row) => ({ row, column: 20, raw }))]);
  sheet.recalculate();
  expect(formulas.map((_, row) => sheet.value(row, 20))).toEqual([449_994, 6, 3, 3, 0, 2.000003]);
});

/** Numbers that look random and are the same each time. */
function* dice(seed: number): Generator<number> {
  for (let state = seed; ; ) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    yield state / 2 ** 32;
  }
}

test("edits step by step leave what opening the sheet anew gives", () => {
  for (let seed = 1; seed <= 15; seed += 1) {
    const next = dice(seed);
    const roll = (sides: number) => Math.floor((next.next().value as number) * sides);
    const raw = (): string => {
      const [from, to] = [1 + roll(40), 41 + roll(60)];
      const column = "ABC"[roll(3)];
      return [
        "", "", String(roll(9)), "text", `=SUM(${column}${from}:${column}${to})`, `=SUM(${column}:${column})`, `=MAX(A$1:B${to})`,
        `=COUNTIF(${column}:${column},3)`, `={1;2;${roll(5)}}`, `=${column}${to}+1`, `=${column}${from}:${column}${from + 1 + roll(3)}`, "=AVERAGE(A:C)",
      ][roll(12)] ?? "";
    };
    const sheet = opened();
    const cells = new Map<string, Change>();
    for (let step = 0; step < 30; step += 1) {
      // Formulas stand right of what they read, but for some, which make circles.
      const changes = Array.from({ length: 1 + roll(6) }, (): Change => {
        const isFormula = roll(2) === 1;
        const text = raw();
        const column = text.startsWith("=") ? 3 + roll(3) : roll(3);
        return { row: roll(100), column, raw: isFormula || !text.startsWith("=") ? text : "4" };
      });
      for (const change of changes) cells.set(`${change.row},${change.column}`, change);
      sheet.set(changes);
      sheet.recalculate();
    }
    const fresh = opened();
    fresh.set([...cells.values()]);
    fresh.recalculate();
    const all = (of: Sheet) => Array.from({ length: 100 }, (_, row) => [0, 1, 2, 3, 4, 5].map((column) => shown(of.value(row, column))));
    expect(all(sheet), `seed ${seed}`).toEqual(all(fresh));
  }
});
