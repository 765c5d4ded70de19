// Formulas: reading, evaluating, moving.

import { CellError, PENDING, type Scalar, type Value, shown } from "relserve-client/value";
import { describe, expect, test } from "vitest";

import { cellName, columnName, columnOf } from "../src/core/address";
import { type Context, evaluate } from "../src/core/evaluate";
import { FormulaError, parse } from "../src/core/parse";
import { Ranges } from "../src/core/ranges";
import { shift } from "../src/core/shift";
import { typed } from "../src/core/typed";

const CELLS: Record<string, Scalar> = { A1: 2, A2: 3, A3: null, B1: "good", B2: 'say "hi"', C1: PENDING, F1: "5 stars", F2: "2024-01-02", F3: 7, C2: new CellError("#N/A", "why") };

const ranges = () => new Ranges((row, column) => CELLS[cellName(row, column)] ?? null);
const context: Context = {
  area: (area) => ranges().matrix(area),
  numbers: (area) => ranges().numbers(area),
  ai: (item, args) => `${item.name}:${JSON.stringify(args)}`,
  clock: () => 0,
};

function run(formula: string): Value {
  return evaluate(parse(formula), context);
}

describe("expressions", () => {
  test("texts that begin with digits are no numbers, and codes keep theirs", () => {
    expect(run('=SUM("5 stars",1)')).toMatchObject({ code: "#VALUE!" });
    expect(run("=AVERAGE(F1:F2)")).toMatchObject({ code: "#DIV/0!" });
    expect(shown(typed("4006381333931"))).toBe("4006381333931");
    expect(shown(typed("123456789012345"))).toBe("123456789012345");
    for (const code of ["1234567890123456", "00012", "1E400"]) expect(typed(code)).toBe(code);
    expect(shown(0.1 + 0.2)).toBe("0.3");
  });

  test("a formula's text is bounded before it is made", () => {
    for (const formula of [
      '=REPT("x",100000000)', '=REPT("x",30000)&REPT("x",3000)', '=SUBSTITUTE(REPT("a",30000),"a",REPT("b",30000))',
      '=TEXTJOIN(REPT("-",20000),TRUE,"a","b","c")', '=CONCAT(REPT("x",30000),REPT("x",3000))',
    ]) expect(run(formula), formula).toMatchObject({ code: "#VALUE!" });
    expect(run('=LEN(REPT("ab",16000))')).toBe(32_000);
  });

  test.each([
    ["=1+2*3^2", 19], ["=-2^2", 4], ["=0-2^2", -4], ["=1-A1^2", -3], ["=-(2^2)", -4], ["=2^-1", 0.5], ["=2^3^2", 64], ["=-50%", -0.5], ["=--A1", 2], ["=(1+2)*3", 9], ["=50%", 0.5], ["=2*-3", -6], ["=A1+A2", 5], ["=A3+1", 1],
    ['="a"&"b"&1', "ab1"], ['="He said ""no"""', 'He said "no"'], ["=A1>=2", true], ['=B1="GOOD"', true],
    ["=SUM(A1:A3,1)", 6], ["=AVERAGE(A1:A2)", 2.5], ['=COUNTIF(B1:B2,"good")', 1], ["=LEN(B2)", 8],
    ['=IF(A1>1,"yes",1/0)', "yes"], ['=IFERROR(1/0,"none")', "none"], ["=UPPER(B2)", 'SAY "HI"'],
    ['=CONCAT(A1:A2,"x")', "23x"], ["=SUM(F1:F3)", 7], ["=SUM(F1,A1)", 2], ["=AVERAGE(F1:F3)", 7], ["=MAX(F1:F2)", 0], ['=SUM("5",1)', 6],
    ["=SUMPRODUCT(F1:F3,F1:F3)", 49], ["=LARGE(F1:F3,1)", 7], ["=MIN(F1:F3,A1)", 2], ["=$A$1+A$2", 5], ['=IF(A1=2;"a";"b")', "a"], ["=ROUND(2.345,2)", 2.35],
  ])("%s is %s", (formula, value) => {
    expect(run(formula)).toEqual(value);
  });

  test.each([
    ['"pear"', 2], ['"p*"', 4], ['"*R"', 2], ['"p?ar"', 2], ['"????"', 4], ['"*ea*"', 3], ['"~*"', 1], ['"*~?"', 1], ['"a~~b"', 1], ['"*"', 9],
    ['"<>p*"', 10], ["5", 2], ['"5"', 2], ['">4"', 2], ['"<=5"', 1], ['">=5"', 2], ['"<>5"', 12], ['"=pear"', 2], ['"<b"', 4], ["TRUE", 1],
    ['""', 2], ['"="', 1], ['"<>"', 13], ['"#N/A"', 1], ['"none"', 0], ["G15", 0], ['"*a*a*a*a*a*a*a*a*b"', 0],
  ])("COUNTIF of %s is %s", (sought, found) => {
    const cells: Scalar[] = ["pear", "Pear", "peach", "plum", "*", "why?", "a~b", 5, "5", 7, true, "", new CellError("#N/A")];
    for (const [i, value] of cells.entries()) CELLS[`G${i + 1}`] = value;
    expect(run(`=COUNTIF(G1:G14,${sought})`)).toBe(found);
  });

  test("a pattern with many stars is done with a long text at once", () => {
    CELLS["H1"] = "a".repeat(30_000);
    expect(run(`=COUNTIF(H1:H1,"${"*a".repeat(30)}*b")`)).toBe(0);
    expect(run(`=COUNTIF(H1:H1,"${"*a".repeat(30)}*")`)).toBe(1);
  });

  test("what is found is added up, or what stands beside it", () => {
    for (const [name, value] of Object.entries({ I1: "pear", I2: "plum", I3: "fig", J1: 1, J2: 2, J3: new CellError("#N/A", "why"), J4: 8 })) CELLS[name] = value;
    expect(run('=SUMIF(I1:I3,"p*",J1:J3)')).toBe(3);
    expect(run('=SUMIF(J1:J2,">1")')).toBe(2);
    expect(run('=AVERAGEIF(I1:I2,"p*",J1:J2)')).toBe(1.5);
    expect(run('=AVERAGEIF(I1:I2,"x*",J1:J2)')).toMatchObject({ code: "#DIV/0!" });
    expect(run('=SUMIF(I1:I3,"fig",J1:J3)')).toMatchObject({ code: "#N/A", note: "why" });
    expect(run('=COUNTIF(I1:I3,{"pear","p*"})')).toEqual([[1, 2]]);
    expect(run("=COUNTIF(I1:I3)")).toMatchObject({ code: "#N/A" });
    expect(run('=SUMIF(A1:A2,">0",C1:C1)')).toBe(PENDING);
  });

  test("a quote in a cell is text and never code", () => {
    CELLS["D1"] = '"; globalThis.stolen = 1; "';
    expect(run("=D1&1")).toBe('"; globalThis.stolen = 1; "1');
    expect(run("=UPPER(D1)")).toContain("GLOBALTHIS");
    expect(globalThis).not.toHaveProperty("stolen");
  });

  test("errors and waiting go through, except where they are looked at", () => {
    expect(run("=C2+1")).toMatchObject({ code: "#N/A", note: "why" });
    expect(run("=SUM(C1:C2)")).toMatchObject({ code: "#N/A" });
    expect(run("=C1+1")).toBe(PENDING);
    expect(run("=COUNTIF(C1:C1,1)")).toBe(PENDING);
    expect(run("=ISERROR(C2)")).toBe(true);
    expect(run("=1/0")).toMatchObject({ code: "#DIV/0!" });
    expect(run('="a"*2')).toMatchObject({ code: "#VALUE!" });
  });

  test.each([
    ['=MATCH("x",A1:A2,0)', "#N/A"], ["=SQRT(-1)", "#NUM!"], ["=INDEX(A1:A2,9)", "#REF!"], ["=STDEV(A1)", "#DIV/0!"], ["=10^400", "#NUM!"], ["=#REF!+1", "#REF!"],
    ["=LARGE(A1:A2,5)", "#NUM!"], ["=EXP(1000)", "#NUM!"],
  ])("%s is %s, and says why", (formula, code) => {
    expect(run(formula)).toMatchObject({ code, note: expect.stringMatching(/[a-z]{2,} /) });
  });

  test("an unknown name says so, and says which AI functions there are", () => {
    expect(run("=NOPE(1)")).toMatchObject({ code: "#NAME?" });
    expect(run('=AI.GUESS("x")')).toMatchObject({ code: "#NAME?", note: expect.stringContaining("AI.CLASSIFY") });
    expect(run("=foo")).toMatchObject({ code: "#NAME?" });
  });

  test("ranges meet cells and ranges of their size", () => {
    expect(run("=A1:A2*10")).toEqual([[20], [30]]);
    expect(run("=A1:A2+{1;2}")).toEqual([[3], [5]]);
    expect(run("=A1:A2+{1;2;3}")).toEqual([[3], [5], [expect.objectContaining({ code: "#N/A" })]]);
  });

  test.each(["=1+", "=(1", '="open', "=SUM(1", "=1 2", "=@", `=${"(".repeat(100)}1${")".repeat(100)}`])(
    "%s is refused with its place",
    (formula) => {
      expect(() => parse(formula)).toThrow(FormulaError);
      expect(() => parse(formula)).toThrow(/at character \d+/);
    },
  );

  test("AI functions are found in any case, with arguments left out", () => {
    expect(run('=ai.rate("x",,1)')).toBe('rate:["x",null,1]');
  });
});

describe("moving", () => {
  test.each([
    ["=A1+$B$1+C$1+$D1", 2, 1, "=B3+$B$1+D$1+$D3"],
    ['=AI.CLASSIFY(A2, "A1, B2")', 1, 0, '=AI.CLASSIFY(A3, "A1, B2")'],
    ["=LOG10(A1)", 1, 0, "=LOG10(A2)"],
    ["=A1", -1, 0, "=#REF!"],
    ["A1", 1, 0, "A1"],
  ])("%s by %i rows and %i columns is %s", (raw, rows, columns, moved) => {
    expect(shift(raw, rows, columns)).toBe(moved);
  });
});

test("column names count as in every spreadsheet", () => {
  for (const [column, name] of [[0, "A"], [25, "Z"], [26, "AA"], [51, "AZ"], [52, "BA"]] as const) {
    expect(columnName(column)).toBe(name);
    expect(columnOf(name)).toBe(column);
  }
});

test("what is typed becomes a number, a truth value or text", () => {
  expect(["", "12", " -1.5e3 ", "50%", "true", "'12", "1,5", "x"].map(typed)).toEqual([
    null, 12, -1500, 0.5, true, "12", "1,5", "x",
  ]);
  expect(shown(0.1 + 0.2)).toBe("0.3");
});
