// How a sheet looks: formats, filters, what is frozen, charts; what is found in it.

import { AnswerCache } from "relserve-client/answer-cache";
import { expect, test } from "vitest";

import { nameOf } from "../src/core/address";
import { chartData } from "../src/core/chart-data";
import { hiddenRows, textsOf } from "../src/core/filter";
import { find } from "../src/core/find";
import { type Layout, PLAIN, formatAt, keptLayout, layoutAfter, layoutOf, withFilter, withFormat } from "../src/core/layout";
import { Sheet } from "../src/core/sheet";

const area = (row: number, column: number, rowEnd: number, columnEnd: number) => ({ row, column, rowEnd, columnEnd });

function sheetOf(rows: string[][]): Sheet {
  const sheet = new Sheet(new AnswerCache(), () => undefined);
  sheet.set(rows.flatMap((line, row) => line.map((raw, column) => ({ row, column, raw }))));
  sheet.recalculate();
  return sheet;
}

const SALES = [
  ["Day", "Region", "Amount"],
  ["2026-01-01", "North", "10"], ["2026-01-02", "South", "200"], ["2026-01-03", "North", "30"], ["2026-01-04", "", "1000"],
];

test("the format that was chosen last holds, and what it covers is forgotten", () => {
  let layout = withFormat(PLAIN, area(0, 2, 19_999, 2), "0.00");
  layout = withFormat(layout, area(1, 2, 1, 2), "0%");
  expect([formatAt(layout, 0, 2), formatAt(layout, 1, 2), formatAt(layout, 1, 1)]).toEqual(["0.00", "0%", undefined]);
  layout = withFormat(layout, area(1, 2, 1, 2), "");
  expect([formatAt(layout, 1, 2), layout.formats.length]).toEqual([undefined, 2]);
  layout = withFormat(layout, area(0, 2, 19_999, 2), "");
  expect(keptLayout(layout)).toBe(undefined);
});

test("formats, filters, charts and what is frozen move with rows and columns", () => {
  const layout: Layout = {
    formats: [{ ...area(1, 2, 4, 2), code: "0" }], filters: [{ column: 1, hidden: ["x"], criterion: "" }], frozenRows: 1, frozenColumns: 2,
    charts: [{ kind: "line", title: "C", area: area(0, 1, 4, 2) }],
  };
  const wider = layoutAfter(layout, { kind: "insert", axis: "column", at: 1, count: 1 });
  expect([wider.formats[0], wider.filters[0]?.column, wider.frozenColumns, wider.charts[0]?.area])
    .toEqual([{ ...area(1, 3, 4, 3), code: "0" }, 2, 3, area(0, 2, 4, 3)]);
  const shorter = layoutAfter(layout, { kind: "delete", axis: "row", at: 0, count: 3 });
  expect([shorter.formats[0], shorter.frozenRows, shorter.charts[0]?.area]).toEqual([{ ...area(0, 2, 1, 2), code: "0" }, 0, area(0, 1, 1, 2)]);
  const gone = layoutAfter(layout, { kind: "delete", axis: "column", at: 1, count: 2 });
  expect([gone.formats, gone.filters, gone.charts, gone.frozenColumns]).toEqual([[], [], [], 1]);
});

test("a layout that an older page kept has what it lacks", () => {
  expect(layoutOf(undefined)).toEqual(PLAIN);
  expect(layoutOf({ frozenRows: 1 })).toEqual({ ...PLAIN, frozenRows: 1 });
});

test("filters hide rows below the header, by texts as they are seen and by criteria, together", () => {
  const sheet = sheetOf(SALES);
  const rows = (layout: Layout) => [...hiddenRows(sheet, layout)].sort();
  const north = withFilter(PLAIN, { column: 1, hidden: ["North"], criterion: "" });
  expect(rows(north)).toEqual([1, 3]);
  expect(rows(withFilter(north, { column: 2, hidden: [], criterion: ">500" }))).toEqual([1, 2, 3]);
  expect(rows(withFilter(PLAIN, { column: 1, hidden: [], criterion: "ort" }))).toEqual([2, 4]);
  expect(rows(withFilter(PLAIN, { column: 0, hidden: [], criterion: ">=2026-01-03" }))).toEqual([1, 2]);
  expect(rows(withFilter(north, { column: 1, hidden: [], criterion: "" }))).toEqual([]);
  const formatted = withFormat(PLAIN, area(0, 2, 9, 2), "#,##0.0");
  expect([...textsOf(sheet, formatted, 2).keys()]).toEqual(["1,000.0", "10.0", "30.0", "200.0"].sort(new Intl.Collator(undefined, { numeric: true }).compare));
  expect([...textsOf(sheet, PLAIN, 1)]).toEqual([["North", 2], ["South", 1], ["", 1]]);
});

test("what is found is what is seen, and no hidden row", () => {
  const sheet = sheetOf(SALES);
  expect(find(sheet, PLAIN, "NORTH", () => false).map(nameOf)).toEqual(["B2", "B4"]);
  expect(find(sheet, PLAIN, "north", (row) => row === 1).map(nameOf)).toEqual(["B4"]);
  expect(find(sheet, withFormat(PLAIN, area(0, 2, 9, 2), "#,##0.0"), "1,000.0", () => false).map(nameOf)).toEqual(["C5"]);
  expect(find(sheet, PLAIN, "", () => false)).toEqual([]);
});

test("a chart has names, series and headers, leaves hidden rows out, and counts texts", () => {
  const sheet = sheetOf(SALES);
  const all = chartData(sheet, PLAIN, area(0, 1, 4, 2), () => false);
  expect(all).toEqual({ labels: ["North", "South", "North", ""], series: [{ name: "Amount", values: [10, 200, 30, 1000] }], axis: "Region" });
  expect(chartData(sheet, PLAIN, area(0, 1, 4, 2), (row) => row === 2).labels).toEqual(["North", "North", ""]);
  expect(chartData(sheet, PLAIN, area(0, 1, 4, 1), () => false))
    .toEqual({ labels: ["North", "South"], series: [{ name: "Count of Region", values: [2, 1] }], axis: "Region" });
  expect(chartData(sheet, PLAIN, area(1, 2, 3, 2), () => false)).toEqual({ labels: ["2", "3", "4"], series: [{ name: "C", values: [10, 200, 30] }], axis: "Row" });
});

test("the format of a cell is that of the last area over it, however many there are", () => {
  let seed = 7;
  const random = (most: number) => (seed = (seed * 48_271) % 2_147_483_647) % most;
  const formats = Array.from({ length: 300 }, (_, i) => {
    const [row, column] = [random(40), random(6)];
    return { row, rowEnd: row + random(12), column, columnEnd: column + random(3), code: i % 5 ? `0.${"0".repeat(i % 7)}` : "" };
  });
  const layout = { ...PLAIN, formats };
  for (let row = 0; row < 55; row += 1) {
    for (let column = 0; column < 9; column += 1) {
      const over = formats.findLast((area) => area.row <= row && row <= area.rowEnd && area.column <= column && column <= area.columnEnd);
      expect(formatAt(layout, row, column)).toBe(over?.code || undefined);
    }
  }
});
