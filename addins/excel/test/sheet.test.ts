// The open sheet for the wizard, over Microsoft's own mock of Excel's objects, which refuses what was not loaded.

import { OfficeMockObject } from "office-addin-mock";
import { CellError } from "relserve-client/value";
import { expect, test } from "vitest";

import { read, writeAnswers, writeCell } from "../src/sheet";

interface Range {
  values: unknown;
  formulas: unknown;
}

/** A workbook of one sheet with these used cells from C5. */
function workbook(used: { values: unknown[][] } | { isNullObject: true }) {
  const places: unknown[][] = [];
  const data = {
    workbook: {
      worksheets: {
        sheet: {
          id: "{1}", name: "Reviews",
          used: { rowIndex: 4, columnIndex: 2, values: [], ...used },
          range: { values: [[]], formulas: [[]] },
          getUsedRangeOrNullObject(this: { used: unknown }) {
            return this.used;
          },
          getRangeByIndexes(this: { range: unknown }, ...place: unknown[]) {
            places.push(place);
            return this.range;
          },
        },
        getActiveWorksheet(this: { sheet: unknown }) {
          return this.sheet;
        },
        getItem(this: { sheet: unknown }, id: string) {
          places.push([id]);
          return this.sheet;
        },
      },
    },
  };
  const context = new OfficeMockObject(data) as unknown as Excel.RequestContext;
  const { range } = (context as unknown as { workbook: { worksheets: { sheet: { range: Range } } } }).workbook.worksheets.sheet;
  return { context, range, places };
}

test("the used cells are read with their place; errors are none to ask about", async () => {
  const { context } = workbook({ values: [["Review", "Stars"], ["fine", 5], ["", "#DIV/0!"]] });
  expect(await read(context)).toEqual({
    id: "{1}", name: "Reviews", row: 4, column: 2,
    values: [["Review", "Stars"], ["fine", 5], [null, expect.any(CellError)]],
  });
  expect(await read(workbook({ isNullObject: true }).context)).toBeUndefined();
});

test("a formula is entered, a title and answers stay the texts that they are", async () => {
  const { context, range, places } = workbook({ values: [] });
  const place = { sheet: "{1}", row: 5, column: 4 };
  await writeCell(context, place, "=AI.RATE(C6:C7)");
  expect(range.formulas).toEqual([["=AI.RATE(C6:C7)"]]);
  await writeCell(context, place, "=1+1");
  expect(range.values).toEqual([["'=1+1"]]);
  await writeAnswers(context, place, ["good", null, 4]);
  expect(range.values).toEqual([["'good"], [""], [4]]);
  expect(places).toEqual([["{1}"], [5, 4, 1, 1], ["{1}"], [5, 4, 1, 1], ["{1}"], [5, 4, 3, 1]]);
});
