// Office.js for a page of a test: functions are registered, and one sheet is read and written.

/** The script that stands in for Microsoft's. */
export const OFFICE = `
  window.Office = { context: {}, onReady: (then) => { addEventListener("DOMContentLoaded", then); return Promise.resolve(); } };
  window.functions = {};
  window.CustomFunctions = {
    Error: class { constructor(code, message) { this.code = code; this.message = message; } },
    ErrorCode: { invalidValue: "#VALUE!", notAvailable: "#N/A" },
    associate: (name, run) => { window.functions[name] = run; },
  };
  window.fake = { cells: [], formula: "" };
  // What follows an apostrophe is a text, as in Excel.
  const kept = (value) => (typeof value === "string" ? value.replace(/^'/, "") : value);
  const write = (row, column, values) => values.forEach((line, y) => line.forEach((value, x) => {
    (fake.cells[row + y] ??= [])[column + x] = kept(value);
  }));
  const range = (row, column) => ({
    set values(values) { write(row, column, values); },
    set formulas([[formula]]) { fake.formula = formula; },
  });
  const sheet = {
    id: "{1}", name: "Sheet1", load() {},
    getUsedRangeOrNullObject: () => ({ load() {}, isNullObject: fake.cells.length === 0, values: fake.cells, rowIndex: 0, columnIndex: 0 }),
    getRangeByIndexes: (row, column) => range(row, column),
  };
  window.Excel = {
    run: async (what) => what({ sync: async () => {}, workbook: { worksheets: { getActiveWorksheet: () => sheet, getItem: () => sheet } } }),
  };
`;
