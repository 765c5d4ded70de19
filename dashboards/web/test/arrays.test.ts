// Functions that look something up or give a range, by hand and as other spreadsheets do it.

import { CellError, PENDING, type Scalar, type Value } from "relserve-client/value";
import { describe, expect, test } from "vitest";

import { cellName } from "../src/core/address";
import { evaluate } from "../src/core/evaluate";
import { parse } from "../src/core/parse";
import { Ranges } from "../src/core/ranges";

const TABLE: Scalar[][] = [
  ["pear", 3, "green", true],
  ["fig", 1, "blue", false],
  ["Plum", 2, "blue", true],
  ["apple", 2, "red", false],
  [null, PENDING, new CellError("#N/A", "why"), null],
];
const CELLS = new Map(TABLE.flatMap((row, y) => row.map((value, x) => [cellName(y, x), value] as const)));

function run(formula: string): Value {
  const ranges = new Ranges((row, column) => CELLS.get(cellName(row, column)) ?? null);
  return evaluate(parse(formula), {
    area: (area) => ranges.matrix(area), numbers: (area) => ranges.numbers(area), ai: (item) => item.name, clock: () => 0,
  });
}

describe("looking up", () => {
  test.each<[string, Value]>([
    ['=XLOOKUP("FIG",A1:A4,B1:B4)', 1],
    ['=XLOOKUP("fig",A1:A4,B1:D4)', [[1, "blue", false]]],
    ['=XLOOKUP("kiwi",A1:A4,B1:B4,"none")', "none"],
    ["=XLOOKUP(2,B1:B4,A1:A4)", "Plum"],
    ['=XLOOKUP(2,B1:B4,A1:A4,"",0,-1)', "apple"],
    ['=XLOOKUP(2.5,B1:B4,A1:A4,"",-1)', "Plum"],
    ['=XLOOKUP(2.5,B1:B4,A1:A4,"",1)', "pear"],
    ['=XLOOKUP(9,B1:B4,A1:A4,"",1)', ""],
    ['=XLOOKUP("p*m",A1:A4,C1:C4,"",2)', "blue"],
    ['=XLOOKUP("green",A1:D1,A2:D2)', "blue"],
    ['=XLOOKUP("green",A1:D1,A1:D3)', [["green"], ["blue"], ["blue"]]],
    ['=XLOOKUP({"fig";"none"},A1:A4,B1:B4,0)', [[1], [0]]],
    ['=HLOOKUP("green",A1:D3,2,FALSE)', "blue"],
    ['=IFS(A1="fig",1,B1=3,2)', 2],
    ['=SWITCH(C2,"red",1,"BLUE",2)', 2],
    ['=SWITCH(C1,"red",1,"none")', "none"],
    ['=COUNTIFS(C1:C4,"blue",B1:B4,">1")', 1],
    ['=SUMIFS(B1:B4,C1:C4,"blue")', 3],
    ['=SUMIFS(B1:B4,A1:A4,"p*",D1:D4,TRUE)', 5],
    ['=AVERAGEIFS(B1:B4,C1:C4,"<>blue")', 2.5],
    ['=MINIFS(B1:B4,C1:C4,"blue")', 1],
    ['=MAXIFS(B1:B4,A1:A4,"x*")', 0],
  ])("%s", (formula, value) => {
    expect(run(formula)).toEqual(value);
  });

  test.each<[string, string, RegExp]>([
    ['=XLOOKUP("kiwi",A1:A4,B1:B4)', "#N/A", /nothing like it/],
    ['=XLOOKUP("fig",A1:A4,B1:B3)', "#VALUE!", /different sizes/],
    ['=XLOOKUP("fig",A1:B4,B1:B4)', "#VALUE!", /one row or one column/],
    ['=AVERAGEIFS(B1:B4,C1:C4,"no")', "#DIV/0!", /no number/],
    ['=COUNTIFS(C1:C4,"blue",B1:B3,1)', "#VALUE!", /different sizes/],
    ["=IFS(FALSE,1)", "#N/A", /no condition/],
    ["=SWITCH(1,2,3)", "#N/A", /no case/],
  ])("%s is %s", (formula, code, note) => {
    expect(run(formula)).toMatchObject({ code, note: expect.stringMatching(note) });
  });
});

describe("giving ranges", () => {
  test.each<[string, Value]>([
    ['=FILTER(A1:B4,C1:C4="blue")', [["fig", 1], ["Plum", 2]]],
    ["=FILTER(A1:A4,D1:D4)", [["pear"], ["Plum"]]],
    ["=FILTER(A1:A4,B1:B4>2)", "pear"],
    ['=FILTER(A1:A4,B1:B4>9,"none")', "none"],
    ["=FILTER(A1:C2,{1,0,1})", [["pear", "green"], ["fig", "blue"]]],
    ["=UNIQUE(C1:C4)", [["green"], ["blue"], ["red"]]],
    ["=UNIQUE(C1:C4,FALSE,TRUE)", [["green"], ["red"]]],
    ['=UNIQUE({"a","A","b"},TRUE)', [["a", "b"]]],
    ["=UNIQUE({1;1})", 1],
    ["=SORT(A1:B4)", [["apple", 2], ["fig", 1], ["pear", 3], ["Plum", 2]]],
    ["=SORT(A1:B4,2,-1)", [["pear", 3], ["Plum", 2], ["apple", 2], ["fig", 1]]],
    ["=SORT({10,9,100},1,1,TRUE)", [[9, 10, 100]]],
    ["=SORTBY(A1:A4,B1:B4,1,A1:A4,-1)", [["fig"], ["Plum"], ["apple"], ["pear"]]],
    ["=TRANSPOSE(A1:B2)", [["pear", "fig"], [3, 1]]],
    ["=SEQUENCE(2,2,10,-1)", [[10, 9], [8, 7]]],
    ["=SUM(SEQUENCE(4))", 10],
    ["=SUM(FILTER(B1:B4,D1:D4))", 5],
  ])("%s", (formula, value) => {
    expect(run(formula)).toEqual(value);
  });

  test.each<[string, string, RegExp]>([
    ['=FILTER(A1:A4,C1:C4="no")', "#N/A", /no row/],
    ["=FILTER(A1:A4,D1:D3)", "#VALUE!", /different sizes/],
    ["=FILTER(A1:A4,C1:C4)", "#VALUE!", /neither true nor false/],
    ["=FILTER(A1:A5,C1:C5=\"blue\")", "#N/A", /why/],
    ["=SORT(A1:A4,2)", "#VALUE!", /no column 2/],
    ["=UNIQUE({1;1},FALSE,TRUE)", "#N/A", /once/],
    ["=SEQUENCE(100000,100)", "#VALUE!", /200000 cells/],
  ])("%s is %s", (formula, code, note) => {
    expect(run(formula)).toMatchObject({ code, note: expect.stringMatching(note) });
  });

  test("what is made of cells that wait waits", () => {
    for (const formula of ["=SORT(B1:B5)", "=XLOOKUP(1,B1:B5,A1:A5)", "=UNIQUE(B5)"]) expect(run(formula), formula).toBe(PENDING);
  });
});
