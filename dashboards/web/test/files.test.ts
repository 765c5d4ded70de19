// CSV, XLSX, event streams and the memory of answers.

import { DOMParser } from "@xmldom/xmldom";
import { zipSync, strToU8 } from "fflate";
import { AnswerCache } from "relserve-client/answer-cache";
import { EventReader } from "relserve-client/sse";
import { expect, test } from "vitest";

import { unasked } from "../src/app/files";
import { harmless, readCsv, writeCsv } from "../src/core/csv";
import { decode } from "../src/core/decode";
import { PLAIN } from "../src/core/layout";
import { typed } from "../src/core/typed";
import { readXlsx, writeXlsx } from "../src/files/xlsx";

const parseXml = (text: string) => new DOMParser().parseFromString(text, "text/xml") as unknown as Document;
const rowsOf = (bytes: Uint8Array) => readXlsx(bytes, parseXml)[0]?.rows;

test("CSV comes back as it went", () => {
  const rows = [["a", 'say "hi"', "x,y"], ["", "two\nlines", " padded "], ["é", "", "end"]];
  expect(readCsv(writeCsv(rows))).toEqual(rows);
});

test("CSV of other programs is read: marks, separators, line ends", () => {
  expect(readCsv('\uFEFFa;b\n"x;1";2\n')).toEqual([["a", "b"], ["x;1", "2"]]);
  expect(readCsv("a\tb\r1\t2")).toEqual([["a", "b"], ["1", "2"]]);
  expect(readCsv('5" screen,ok\n')).toEqual([['5" screen', "ok"]]);
  expect(readCsv('a,b\r\n"1\r\n2",3\n4,5\r6,7')).toEqual([["a", "b"], ["1\r\n2", "3"], ["4", "5"], ["6", "7"]]);
  expect(readCsv('"Great" film, ok\n"x, y",2\n')).toEqual([["Great film", " ok"], ["x, y", "2"]]);
  expect(readCsv("good; fine\nbad; poor\n\n")).toEqual([["good", " fine"], ["bad", " poor"], [""]]);
  expect(readCsv("Review\ngood; fine\nbad; poor\n")).toEqual([["Review"], ["good; fine"], ["bad; poor"]]);
  expect(readCsv("")).toEqual([]);
});

test("a quote that is never closed is refused with its line, and not read to the end of the file", () => {
  expect(() => readCsv('a,b\r\n"two\nlines",x\r\n5,"open\r\n6,7\r\n')).toThrow(/quote that opens in line 4 is never closed/);
  expect(() => readCsv('"')).toThrow(/line 1/);
  expect(readCsv('a,"b"')).toEqual([["a", "b"]]);
});

test("a file is read by its mark, as UTF-8, or as what Excel of old wrote, and says so", () => {
  const utf16 = (mark: number[], text: string, isLittle: boolean) =>
    new Uint8Array([...mark, ...[...text].flatMap((letter) => (isLittle ? [letter.charCodeAt(0), 0] : [0, letter.charCodeAt(0)]))]);
  const read = (bytes: Uint8Array) => {
    const { text, note } = decode(bytes);
    return [text, note === "" ? "" : /Windows-1252|some of it is not/.exec(note)?.[0]];
  };
  expect(read(new TextEncoder().encode("Zürich €"))).toEqual(["Zürich €", ""]);
  expect(read(new TextEncoder().encode("\uFEFFé"))).toEqual(["é", ""]);
  expect(read(new Uint8Array([0x5a, 0xfc, 0x72, 0x69, 0x63, 0x68]))).toEqual(["Zürich", "Windows-1252"]);
  expect(read(utf16([0xff, 0xfe], "aé;b", true))).toEqual(["aé;b", ""]);
  expect(read(utf16([0xfe, 0xff], "aé;b", false))).toEqual(["aé;b", ""]);
  expect(read(new Uint8Array([0xef, 0xbb, 0xbf, 0x61, 0xfc]))).toEqual(["a\uFFFD", "some of it is not"]);
  expect(() => decode(new Uint8Array([0x50, 0x4b, 0, 3]))).toThrow(/no text/);
});

test("formulas that ask the model can stay text, others are what they were", () => {
  expect(["=AI.RATE(A1)", "=IF(ai.rate(A1)>3,1,2)", "=A1+1", "AI.RATE", "5"].map(unasked)).toEqual([
    "'=AI.RATE(A1)", "'=IF(ai.rate(A1)>3,1,2)", "=A1+1", "AI.RATE", "5",
  ]);
  expect(typed(unasked("=AI.RATE(A1)"))).toBe("=AI.RATE(A1)");
});

test("text that another program would run leaves with an apostrophe, which is taken off again", () => {
  expect(["=1+1", "@x", "-y", "fine", ""].map(harmless)).toEqual(["'=1+1", "'@x", "'-y", "fine", ""]);
  expect(typed(harmless("=1+1"))).toBe("=1+1");
});

test("XLSX comes back as it went, with its formulas and those of AI functions", () => {
  const bytes = writeXlsx([{ name: "A/B: [x]", rows: [
    [{ value: "text & <more>" }, { value: 1.5 }, { value: true }, { value: null }],
    [{ value: "good", aiFormula: '=AI.CLASSIFY(A1, "good, bad")' }, { value: 3, formula: "B1*2" }],
    [{ value: "=not a formula" }, { value: "007" }, { value: null, error: "#N/A" }],
  ] }]);
  expect(rowsOf(bytes)).toEqual([
    ["text & <more>", "1.5", "TRUE"],
    ['=AI.CLASSIFY(A1, "good, bad")', "=B1*2"],
    ["'=not a formula", "'007", "#N/A"],
  ]);
});

test("what spilled comes back as the formula that it was", () => {
  const bytes = writeXlsx([{ name: "S", rows: [
    [{ value: "good", aiFormula: "=AI.TAG(C1:C2)", spill: "A1:A2" }, { value: 1, formula: "{1;2}", spill: "B1:B2" }],
    [{ value: "bad" }, { value: 2 }],
  ] }]);
  expect(rowsOf(bytes)).toEqual([["=AI.TAG(C1:C2)", "={1;2}"], ["", ""]]);
});

test("XLSX of Excel is read: shared strings, dates, cells left out", () => {
  const main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"';
  const files = {
    "xl/workbook.xml": `<workbook ${main} xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="S" sheetId="1" r:id="rId9"/></sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId9" Target="/xl/worksheets/one.xml"/></Relationships>',
    "xl/sharedStrings.xml": `<sst ${main}><si><r><t>ri</t></r><r><t>ch</t></r></si></sst>`,
    "xl/styles.xml": `<styleSheet ${main}><numFmts><numFmt numFmtId="170" formatCode="dd/mm/yyyy"/></numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="170"/></cellXfs></styleSheet>`,
    "xl/worksheets/one.xml": `<worksheet ${main}><sheetData><row r="2"><c r="B2" t="s"><v>0</v></c><c r="C2" s="1"><v>45292</v></c></row></sheetData></worksheet>`,
  };
  const zip = zipSync(Object.fromEntries(Object.entries(files).map(([path, text]) => [path, strToU8(text)])));
  expect(rowsOf(zip)).toEqual([[], ["", "rich", "2024-01-01"]]);
});

test("every sheet of a workbook is read that is shown and has cells; what reads one that is not is its value", () => {
  const main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"';
  const sheet = (cells: string) => `<worksheet ${main}><sheetData><row r="1">${cells}</row></sheetData></worksheet>`;
  const names = [["First", ""], ["Gone", ' state="hidden"'], ["Chart", ""], ["Second", ""]];
  const files = {
    "xl/workbook.xml": `<workbook ${main} xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets>${names.map(([name, state], i) => `<sheet name="${name}" sheetId="${i}"${state} r:id="r${i}"/>`).join("")}</sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": `<Relationships>${names.map((_, i) => `<Relationship Id="r${i}" Target="s${i}.xml"/>`).join("")}</Relationships>`,
    "xl/s0.xml": sheet('<c r="A1"><v>1</v></c><c r="B1"><f>Second!A1*2</f><v>14</v></c><c r="C1" t="str"><f>A1&amp;"!"</f><v>1!</v></c><c r="D1"><f>Gone!A1</f><v>9</v></c><c r="E1"><f>[1]Second!A1</f><v>8</v></c>'),
    "xl/s1.xml": sheet('<c r="A1"><v>9</v></c>'),
    "xl/s2.xml": `<chartsheet ${main}/>`,
    "xl/s3.xml": sheet('<c r="A1"><v>7</v></c>'),
  };
  const zip = zipSync(Object.fromEntries(Object.entries(files).map(([path, text]) => [path, strToU8(text)])));
  expect(readXlsx(zip, parseXml)).toEqual([{ name: "First", rows: [["1", "=Second!A1*2", '=A1&"!"', "9", "8"]] }, { name: "Second", rows: [["7"]] }]);
});

test("sheets, formats, dates and what is frozen come back as they went", () => {
  const bytes = writeXlsx([
    { name: "Data", frozenRows: 1, frozenColumns: 2, rows: [
      [{ value: "n" }, { value: "day" }],
      [{ value: 1.5, format: "#,##0.00" }, { value: 46_082, format: "dd.mm.yyyy" }],
      [{ value: 2.5, format: "#,##0.00" }, { value: 46_083.5, format: "yyyy-mm-dd hh:mm" }],
    ] },
    { name: "It's all", rows: [[{ value: 4, formula: "SUM(Data!A2:A3)", format: "0%" }, { value: "good", aiFormula: "=AI.TAG(Data!A1:A2)", spill: "B1:B2" }], [{ value: null }, { value: "bad" }]] },
  ]);
  expect(readXlsx(bytes, parseXml)).toEqual([
    {
      name: "Data", rows: [["n", "day"], ["1.5", "2026-03-01"], ["2.5", "2026-03-02 12:00:00"]],
      layout: {
        ...PLAIN, frozenRows: 1, frozenColumns: 2, formats: [
          { row: 1, rowEnd: 1, column: 1, columnEnd: 1, code: "dd.mm.yyyy" },
          { row: 1, rowEnd: 2, column: 0, columnEnd: 0, code: "#,##0.00" },
          { row: 2, rowEnd: 2, column: 1, columnEnd: 1, code: "yyyy-mm-dd hh:mm" },
        ],
      },
    },
    {
      name: "It's all", rows: [["=SUM(Data!A2:A3)", "=AI.TAG(Data!A1:A2)"], ["", ""]],
      layout: { ...PLAIN, formats: [{ row: 0, rowEnd: 0, column: 0, columnEnd: 0, code: "0%" }] },
    },
  ]);
});

test("what is no XLSX is refused in words", () => {
  expect(() => readXlsx(strToU8("hello"), parseXml)).toThrow(/no XLSX file/);
  expect(() => readXlsx(zipSync({ "a.txt": strToU8("x") }), parseXml)).toThrow(/no workbook/);
});

test("events are read however they are cut", () => {
  const stream = 'event: cell\ndata: {"index":0}\n\n: waiting\n\nevent: done\r\ndata: {}\r\n\r\n';
  for (let size = 1; size < 9; size += 1) {
    const reader = new EventReader();
    const events = Array.from({ length: Math.ceil(stream.length / size) }, (_, i) =>
      reader.push(stream.slice(i * size, (i + 1) * size)),
    ).flat();
    expect(events).toEqual([{ name: "cell", data: '{"index":0}' }, { name: "done", data: "{}" }]);
  }
});

test("the memory forgets what was used least", () => {
  const memory = new AnswerCache({ entries: 2, characters: 1000 });
  memory.put("a", { value: "1" });
  memory.put("b", { value: "2" });
  memory.begin();
  memory.get("a");
  memory.put("c", { value: "3" });
  expect([memory.get("a")?.value, memory.get("b"), memory.get("c")?.value]).toEqual(["1", undefined, "3"]);
  const small = new AnswerCache({ entries: 100, characters: 20 });
  small.put("x", { value: "y".repeat(10) });
  small.put("z", { value: "y".repeat(10) });
  expect(small.size, "one run's answers stay").toBe(2);
  small.begin();
  small.put("u", { value: "y".repeat(10) });
  expect([small.size, small.get("u")?.value]).toEqual([1, "y".repeat(10)]);
});
