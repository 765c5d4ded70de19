// Dates, formats and the functions of both.

import { AnswerCache } from "relserve-client/answer-cache";
import { shown } from "relserve-client/value";
import { expect, test } from "vitest";

import { isoOf, serialOf, serialOfInstant } from "../src/core/dates";
import { displayed, isFormat, withDecimals } from "../src/core/number-format";
import { Sheet } from "../src/core/sheet";

const NOON = 46_349.5;

/** The values of formulas in column A, over cells in column B. */
function worth(formulas: string[], cells: string[] = []): string[] {
  const sheet = new Sheet(new AnswerCache(), () => undefined, { other: () => undefined, clock: () => NOON });
  sheet.set(formulas.map((raw, row) => ({ row, column: 0, raw })));
  sheet.set(cells.map((raw, row) => ({ row, column: 1, raw })));
  sheet.recalculate();
  return formulas.map((_, row) => shown(sheet.value(row, 0)));
}

test("a date is its number, and back", () => {
  expect(serialOf("2026-03-01")).toBe(46_082);
  expect(serialOf("2026-03-01 06:00")).toBe(46_082.25);
  expect(["2026-02-30", "2026-3-1", "1.3.2026", "2026-03-01 24:00", "soon"].map(serialOf)).toEqual(Array(5).fill(undefined));
  expect([isoOf(46_082), isoOf(46_082.25), isoOf(1)]).toEqual(["2026-03-01", "2026-03-01 06:00:00", "1899-12-31"]);
  const wall = new Date(2026, 2, 1, 12, 0, 0);
  expect(isoOf(serialOfInstant(wall))).toBe("2026-03-01 12:00:00");
});

test("functions of dates give numbers, and take typed dates", () => {
  expect(worth(["=DATE(2026,3,1)", "=YEAR(B1)", "=MONTH(B1)", "=DAY(B1)", "=B1+1", "=B2-B1", "=DATE(2026,14,0)"], ["2026-03-01", "2026-03-11"]))
    .toEqual(["46082", "2026", "3", "1", "46083", "10", "46418"]);
  expect(worth(["=TODAY()", "=NOW()", "=HOUR(NOW())", "=EDATE(B1,1)", "=EOMONTH(B1,0)", "=WEEKDAY(B1,2)", "=DAYS(B2,B1)"], ["2026-01-31", "2026-02-28"]))
    .toEqual(["46349", "46349.5", "12", String(serialOf("2026-02-28")), String(serialOf("2026-01-31")), "6", "28"]);
  expect(worth(['=DATEDIF(B1,B2,"Y")', '=DATEDIF(B1,B2,"M")', '=DATEDIF(B1,B2,"D")', '=DATEDIF(B1,B2,"YM")', '=DATEDIF(B1,B2,"MD")', '=DATEDIF(B2,B1,"D")', '=DATEDIF(B1,B2,"W")'],
    ["2024-01-20", "2026-03-05"])).toEqual(["2", "25", "775", "1", "13", "#NUM!", "#NUM!"]);
  expect(worth(["=B1<TODAY()", '=B1>DATE(2025,1,1)', '=IF(B2="2026-01-01","yes","no")', "=YEAR(B3)", "=DATE(1,2)", "=YEAR(B4)"],
    ["2026-01-01", "2026-01-01", "soon", "=1/0"])).toEqual(["TRUE", "TRUE", "yes", "#VALUE!", "#N/A", "#DIV/0!"]);
});

test("over a range a function of dates gives a range", () => {
  const sheet = new Sheet(new AnswerCache(), () => undefined);
  sheet.set([{ row: 0, column: 0, raw: "=YEAR(B1:B2)" }, { row: 0, column: 1, raw: "2024-05-01" }, { row: 1, column: 1, raw: "2025-05-01" }]);
  sheet.set([{ row: 0, column: 2, raw: "=TODAY()" }]);
  sheet.recalculate();
  expect([sheet.value(0, 0), sheet.value(1, 0)]).toEqual([2024, 2025]);
  expect(shown(sheet.value(0, 2))).toBe("#N/A");
});

test("a formula that gives a date is shown as one, and a difference of dates is a number", () => {
  const sheet = new Sheet(new AnswerCache(), () => undefined);
  const raws = ["=DATE(2026,3,1)", "=DATE(2026,3,1)+7", "=DATE(2026,3,8)-DATE(2026,3,1)", "=1+DATE(2026,3,1)", "=YEAR(B1)"];
  sheet.set(raws.map((raw, row) => ({ row, column: 0, raw })));
  sheet.recalculate();
  expect(raws.map((_, row) => displayed(sheet.value(row, 0), sheet.usualFormat(row, 0)))).toEqual(["2026-03-01", "2026-03-08", "7", "2026-03-02", "1899"]);
});

test("TEXT knows the formats of other spreadsheets", () => {
  expect(worth(['=TEXT(1234.5,"#,##0.00")', '=TEXT(0.125,"0.0%")', '=TEXT(B1,"d mmmm yyyy")', '=TEXT(B1,"ddd")', '=TEXT("x","0")', '=TEXT(7,"000")', '=TEXT(,"0")'], ["2026-03-01"]))
    .toEqual(["1,234.50", "12.5%", "1 March 2026", "Sun", "x", "007", "0"]);
});

test("the ROUND family", () => {
  expect(worth(["=ROUND(2.345,2)", "=ROUNDUP(2.1,0)", "=ROUNDDOWN(2.9,0)", "=TRUNC(-2.9)", "=MROUND(7,3)", "=CEILING(2.1,1)", "=FLOOR(2.9,1)", "=SIGN(-3)"]))
    .toEqual(["2.35", "3", "2", "-2", "6", "3", "2", "-1"]);
});

test("a format changes what is seen of numbers and of typed dates, and leaves the rest", () => {
  expect([displayed(1234.5, "#,##0.00"), displayed(-0.5, "0%"), displayed("2026-03-01", "dd.mm.yyyy"), displayed("2026-03-01", "0.00"), displayed("text", "0.00"), displayed(null, "0"), displayed(5, undefined)])
    .toEqual(["1,234.50", "-50%", "01.03.2026", "2026-03-01", "text", "", "5"]);
  expect(displayed(1, "[[[")).toBe("1");
  expect([isFormat("0.0"), isFormat("[[["), isFormat("0".repeat(300))]).toEqual([true, false, false]);
});

test("decimals more and fewer", () => {
  expect([withDecimals("#,##0.00", 1), withDecimals("#,##0.0", -1), withDecimals("#,##0", -1), withDecimals("", 1), withDecimals("0%", 1), withDecimals("0.00E+00", 1), withDecimals("yyyy-mm-dd", 1)])
    .toEqual(["#,##0.000", "#,##0", "#,##0", "#,##0.0", "0.0%", "0.000E+00", "#,##0.0"]);
});

test("what is no date and no time is an error and no number that is none", () => {
  const odd = ['=DATEDIF(0,1E20,"Y")', "=TIME(1E308,0,0)", "=TIME(-1,0,0)", "=WEEKDAY(-10)", "=EDATE(1E300,1)", "=DATE(1E308,1,1)", "=YEAR(1E300)"];
  expect(worth(odd)).toEqual(Array(odd.length).fill("#NUM!"));
});
