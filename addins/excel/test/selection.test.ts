// The tools for selected cells, over Microsoft's own mock of Excel's objects, which refuses what was not loaded.

import { OfficeMockObject } from "office-addin-mock";
import { expect, test } from "vitest";

import { askAgain, keepInFormulas, keepValues } from "../src/selection";
import { checked, clear, load, save } from "../src/settings";

interface Cell {
  formula: string;
  values: unknown[][];
  /** Whether the values spill out of the cell. */
  spills: boolean;
}

interface Mocked {
  values: unknown;
  formulas: unknown;
  spill: { values: unknown };
}

/** A selection of one column of cells. */
function workbook(...cells: Cell[]) {
  const mocks: Record<string, unknown> = {};
  cells.forEach(({ values, spills }, row) => {
    mocks[`cell${row}`] = {
      values: spills ? [[values[0]?.[0]]] : values,
      formulas: [[""]],
      spill: { values },
      getSpillingToRangeOrNullObject(this: { spill: unknown }) {
        return this.spill;
      },
    };
  });
  const data = {
    workbook: {
      selected: {
        formulas: cells.map(({ formula }) => [formula]),
        ...mocks,
        getCell(this: Record<string, unknown>, row: number) {
          return this[`cell${row}`];
        },
      },
      getSelectedRange(this: { selected: unknown }) {
        return this.selected;
      },
    },
  };
  const context = new OfficeMockObject(data) as unknown as Excel.RequestContext;
  const { selected } = (context as unknown as { workbook: { selected: Record<string, Mocked> } }).workbook;
  // The one property that is there without `load`.
  cells.forEach(({ spills }, row) => Object.assign(selected[`cell${row}`]?.spill ?? {}, { isNullObject: !spills }));
  return { context, cell: (row: number) => selected[`cell${row}`] };
}

const single = (formula: string, value: unknown): Cell => ({ formula, values: [[value]], spills: false });

test("kept as values, a spill keeps its shape, an answer stays a text, and what waits is left", async () => {
  const book = workbook(
    { formula: '=AI.CLASSIFY(A2:A3,"a,b")', values: [["=a"], ["b"]], spills: true },
    single("=AI.RATE(A2)", 4), single("=AI.RATE(A3)", "#N/A"), single("=SUM(A1)", 3),
  );
  expect(await keepValues(book.context)).toBe("Formulas kept as values: 2. Left as they are: 1 (its answer is not there).");
  expect(book.cell(0)?.spill.values).toEqual([["'=a"], ["'b"]]);
  expect(book.cell(1)?.values).toEqual([[4]]);
  expect(book.cell(2)?.values).toEqual([["#N/A"]]);
});

test("kept in the formula, the answer is its last argument", async () => {
  const book = workbook(
    { formula: '=AI.CLASSIFY(A2:A3,"a,b")', values: [["a"], ["b"]], spills: true }, single("=AI.RATE(A2)", 4),
    single('=UPPER(AI.ASK("x"))', "Y"),
  );
  expect(await keepInFormulas(book.context)).toMatch(/^Formulas .*: 2\. Left .*: 1 .*more than one AI call/);
  expect(book.cell(0)?.formulas).toEqual([['=AI.CLASSIFY(A2:A3,"a,b",{"a";"b"})']]);
  expect(book.cell(1)?.formulas).toEqual([["=AI.RATE(A2,,,,4)"]]);
});

test("asked again, a formula loses its kept answer", async () => {
  const book = workbook(single("=AI.RATE(A2,,,,4)", 4), single("=AI.RATE(A3)", "#N/A"));
  expect(await askAgain(book.context)).toBe("Asked again: 2.");
  expect([book.cell(0)?.formulas, book.cell(1)?.formulas]).toEqual([[["=AI.RATE(A2)"]], [["=AI.RATE(A3)"]]]);
});

test("server and key are kept together, by partition, and forgotten", () => {
  const held = new Map<string, string>();
  const store = {
    getItem: (name: string) => held.get(name) ?? null,
    setItem: (name: string, value: string) => void held.set(name, value),
    removeItem: (name: string) => void held.delete(name),
  };
  save(store, { url: "https://x.example", key: "rs-1" }, "p");
  expect(load(store, "p")).toEqual({ url: "https://x.example", key: "rs-1" });
  expect(load(store)).toBeUndefined();
  clear(store, "p");
  expect(load(store, "p")).toBeUndefined();
  held.set("relserve", "{");
  expect(load(store)).toBeUndefined();
});

test("an address is checked, and a key never travels in the clear", () => {
  expect(checked(" https://x.example/base/ ")).toEqual({ url: "https://x.example/base" });
  expect(checked("http://localhost:8080")).toEqual({ url: "http://localhost:8080" });
  for (const bad of ["x.example", "http://x.example", "ftp://x.example", "https://u:p@x.example", "https://x.example?a=b"]) {
    expect(checked(bad), bad).toHaveProperty("problem");
  }
});
