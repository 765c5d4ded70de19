// CSV, XLSX, event streams and the memory of answers.

import { DOMParser } from "@xmldom/xmldom";
import { zipSync, strFromU8, strToU8, unzipSync } from "fflate";
import { AnswerCache } from "relserve-client/answer-cache";
import { EventReader } from "relserve-client/sse";
import { expect, test } from "vitest";

import { unasked, xlsxOf } from "../src/app/files";
import { Book } from "../src/core/book";
import { rewrite } from "../src/core/references";
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

/** A workbook of one sheet as other programs write it. */
function foreign(cells: string, formats: readonly string[] = []): Uint8Array {
  const files = {
    "xl/workbook.xml": '<workbook xmlns:r="r"><sheets><sheet name="S" r:id="r1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": '<Relationships><Relationship Id="r1" Target="s.xml"/></Relationships>',
    "xl/styles.xml": `<styleSheet><numFmts>${formats.map((code, i) => `<numFmt numFmtId="${200 + i}" formatCode="${code}"/>`).join("")}</numFmts><cellXfs><xf numFmtId="0"/>${formats.map((_, i) => `<xf numFmtId="${200 + i}"/>`).join("")}</cellXfs></styleSheet>`,
    "xl/s.xml": `<worksheet><sheetData>${cells}</sheetData></worksheet>`,
  };
  return zipSync(Object.fromEntries(Object.entries(files).map(([path, text]) => [path, strToU8(text)])));
}

/** The cells of the first sheet of a file, as XML. */
async function written(sheets: Record<string, readonly string[]>): Promise<string> {
  const book = new Book(new AnswerCache(), () => undefined, () => Number.NaN);
  for (const [name, raws] of Object.entries(sheets)) book.add(name).sheet.set(raws.map((raw, row) => ({ row, column: 0, raw })));
  book.recalculate();
  return strFromU8(unzipSync(await xlsxOf(book.members, "W", new Map()))["xl/worksheets/sheet1.xml"] ?? new Uint8Array());
}

test("a formula that is none here leaves as text, and one that names a sheet that is not in the file as its value", async () => {
  const xml = await written({ One: ["=cmd|'/C calc'!A0", "=1+", "=A1", "=Two!A1*2", "=Gone!A1"], Two: ["21"] });
  const shown = Array.from(xml.matchAll(/<c r="A(\d)"[^>]*>(.*?)<\/c>/g), ([, row, cell]) => `${row} ${cell?.replace(/<is>|<\/is>/g, "")}`);
  expect(shown).toEqual([
    `1 <t xml:space="preserve">=cmd|'/C calc'!A0</t>`, '2 <t xml:space="preserve">=1+</t>', "3 <f>A1</f><v>#VALUE!</v>",
    "4 <f>Two!A1*2</f><v>42</v>", "5 <v>#REF!</v>",
  ]);
  // One sheet alone is named as its workbook.
  expect(await written({ One: ["7", "=One!A1"] })).toContain('<c r="A2"><v>7</v></c>');
});

test("newer functions leave under the names that Excel has for them in a file, and come back", async () => {
  const formulas = ['=XLOOKUP(1,B1:B2,C1:C2,"SORT(")', "=SUM(FILTER(B1:B2,B1:B2>0))", "=ifs(TRUE,1)"];
  const xml = await written({ One: formulas, Two: [] });
  for (const formula of ['_xlfn.XLOOKUP(1,B1:B2,C1:C2,&quot;SORT(&quot;)', "SUM(_xlfn._xlws.FILTER(B1:B2,", "_xlfn.ifs("]) expect(xml).toContain(formula);
  const bytes = writeXlsx([{ name: "S", rows: formulas.map((formula) => [{ value: 1, formula: formula.slice(1) }]) }]);
  expect(rowsOf(bytes)?.flat()).toEqual(formulas);
});

test("what Excel would refuse does not get into a file: long texts, quotes around a sheet's name", () => {
  const bytes = writeXlsx([{ name: "'S'", rows: [[{ value: "x".repeat(40_000) }]] }]);
  const [sheet] = readXlsx(bytes, parseXml);
  expect([sheet?.name, sheet?.rows[0]?.[0]?.length]).toEqual(["S", 32_767]);
});

test("times and numbers that are no dates stay numbers; texts that look like values stay texts", () => {
  const cells = [["1", "45292"], ["2", "0.5"], ["1", "1e300"], ["1", "-5"]].map(([style, value], i) => `<c r="A${i + 1}" s="${style}"><v>${value}</v></c>`);
  const texts = ["TRUE", "5%", "007", "plain"].map((text, i) => `<c r="A${i + 5}" t="inlineStr"><is><t>${text}</t></is></c>`);
  expect(rowsOf(foreign(`<row>${[...cells, ...texts].join("")}</row>`, ["yyyy-mm-dd", "hh:mm"]))?.flat())
    .toEqual(["2024-01-01", "0.5", "1e300", "-5", "'TRUE", "'5%", "'007", "plain"]);
});

test("a file of many formats or of formulas without an end opens in bounded time and memory", () => {
  const rows = Array.from({ length: 2_100 }, (_, y) => `<row r="${y + 1}"><c r="A${y + 1}" s="${1 + (y % 2)}"><v>1</v></c></row>`);
  expect(readXlsx(foreign(rows.join(""), ["0.0", "0.00"]), parseXml)[0]?.layout?.formats).toHaveLength(2_000);
  // No formula is that long; quotes without an end in such a text are looked through for hours.
  const endless = `A1${"+A1".repeat(3_000)}`;
  expect(rowsOf(foreign(`<row><c r="A1"><f>${endless}</f><v>3</v></c></row>`))).toEqual([["3"]]);
  expect(rewrite(`=${endless}`, () => undefined)).toBe(`=${endless}`);
  const bomb = zipSync({ "xl/a.xml": strToU8("a"), "xl/b.xml": strToU8("b"), "xl/c.xml": strToU8("c") });
  // What each part unpacks to stands in the list at the end.
  const view = new DataView(bomb.buffer, bomb.byteOffset);
  for (let at = 0; at + 28 < bomb.length; at += 1) if (view.getUint32(at, true) === 0x02014b50) view.setUint32(at + 24, 60 << 20, true);
  expect(() => readXlsx(bomb, parseXml)).toThrow(/more than 128 MiB/);
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
