// XLSX both ways, on fflate (MIT) for the ZIP and no library for the rest: a workbook of one grid is small, and
// the libraries that read and write formulas are unmaintained or several times this page. Loaded when needed.
//
// No other program knows `AI.*`, so a cell with an AI function leaves as its value; its formula is kept in a
// second sheet, from which an import into RelServe restores it. That sheet also names the cells in which an answer was
// typed over.

import { strFromU8, strToU8, unzipSync, zipSync } from "fflate";

import { COLUMNS_MAX, ROWS_MAX, cellName, columnName, columnOf } from "../core/address";

/** A cell on its way out. */
export interface OutCell {
  value: string | number | boolean | null;
  /** An error's code, instead of a value. */
  error?: string;
  /** A formula that every program knows, without `=`. */
  formula?: string;
  /** A formula that only RelServe knows, with `=`. */
  aiFormula?: string;
  /** The area that its answer spilled to, itself included: `B2:B51`. */
  spill?: string;
  /** Whether it stands for an answer that was typed over. */
  isEdited?: boolean;
}

/** The sheet that holds the AI formulas. */
const FORMULAS = "RelServe formulas";
/** What stands there beside a cell that was typed over. */
const EDITED = "edited";
/** Largest unpacked part that is read: a small file may claim to be a huge one. */
const PART_BYTES_MAX = 64 << 20;

const HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';
const MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const PACKAGE = "http://schemas.openxmlformats.org/package/2006";

function escape(text: string): string {
  // Control characters have no place in XML 1.0.
  return text
    .replace(/[\u0000-\u0008\u000B\u000C\u000E-\u001F\uFFFE\uFFFF]/g, "")
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

function cellXml(name: string, cell: OutCell): string {
  const array = cell.spill ? ` t="array" ref="${cell.spill}"` : "";
  const formula = cell.formula ? `<f${array}>${escape(cell.formula)}</f>` : "";
  if (cell.error) return `<c r="${name}" t="e">${formula}<v>${escape(cell.error)}</v></c>`;
  if (typeof cell.value === "number") return `<c r="${name}">${formula}<v>${cell.value}</v></c>`;
  if (typeof cell.value === "boolean") return `<c r="${name}" t="b">${formula}<v>${Number(cell.value)}</v></c>`;
  if (cell.value === null) return formula ? `<c r="${name}">${formula}</c>` : "";
  if (formula) return `<c r="${name}" t="str">${formula}<v>${escape(cell.value)}</v></c>`;
  return `<c r="${name}" t="inlineStr"><is><t xml:space="preserve">${escape(cell.value)}</t></is></c>`;
}

function sheetXml(rows: OutCell[][]): string {
  const lines = rows.map((row, y) => {
    const cells = row.map((cell, x) => cellXml(cellName(y, x), cell)).join("");
    return cells ? `<row r="${y + 1}">${cells}</row>` : "";
  });
  return `${HEAD}<worksheet xmlns="${MAIN}"><sheetData>${lines.join("")}</sheetData></worksheet>`;
}

/** What the second sheet remembers of a cell. */
function kept(name: string, { aiFormula, spill, isEdited }: OutCell): OutCell[][] {
  const line = aiFormula ? [name, aiFormula, spill ?? ""] : isEdited ? [name, EDITED] : [];
  return line.length > 0 ? [line.map((value) => ({ value }))] : [];
}

/** A workbook of one sheet. */
export function writeXlsx(name: string, rows: OutCell[][]): Uint8Array {
  const remembered = rows.flatMap((row, y) => row.flatMap((cell, x) => kept(cellName(y, x), cell)));
  // Excel refuses some letters in a sheet's name, and more than 31 of them.
  const title = name.replace(/[\\/?*[\]:]/g, " ").slice(0, 31).trim() || "Sheet";
  const names = remembered.length > 0 ? [title === FORMULAS ? "Sheet" : title, FORMULAS] : [title];
  const sheets = names.map((text, i) => `<sheet name="${escape(text)}" sheetId="${i + 1}" r:id="rId${i + 1}"/>`);
  const links = names.map(
    (_, i) => `<Relationship Id="rId${i + 1}" Type="${OFFICE}/worksheet" Target="worksheets/sheet${i + 1}.xml"/>`,
  );
  const parts = names.map(
    (_, i) =>
      `<Override PartName="/xl/worksheets/sheet${i + 1}.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>`,
  );
  const files: Record<string, string> = {
    "[Content_Types].xml": `${HEAD}<Types xmlns="${PACKAGE}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>${parts.join("")}</Types>`,
    "_rels/.rels": `${HEAD}<Relationships xmlns="${PACKAGE}/relationships"><Relationship Id="rId1" Type="${OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
    "xl/workbook.xml": `${HEAD}<workbook xmlns="${MAIN}" xmlns:r="${OFFICE}"><sheets>${sheets.join("")}</sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": `${HEAD}<Relationships xmlns="${PACKAGE}/relationships">${links.join("")}</Relationships>`,
    "xl/worksheets/sheet1.xml": sheetXml(rows),
  };
  if (remembered.length > 0) files["xl/worksheets/sheet2.xml"] = sheetXml(remembered);
  return zipSync(Object.fromEntries(Object.entries(files).map(([path, text]) => [path, strToU8(text)])));
}

/** Makes a document of XML; the browser's parser, or a test's. */
export type ParseXml = (text: string) => Document;

/** A sheet of a workbook, as what would be typed. */
export interface ReadSheet {
  name: string;
  rows: string[][];
}

/** The sheets of a workbook that are not hidden, one at least. Throws with words for people. */
export function readXlsx(bytes: Uint8Array, parseXml: ParseXml): ReadSheet[] {
  let files: Record<string, Uint8Array>;
  try {
    files = unzipSync(bytes, {
      filter: ({ name, originalSize }) => {
        if (originalSize > PART_BYTES_MAX) throw new Error(`${name} is larger than ${PART_BYTES_MAX >> 20} MiB`);
        return name.startsWith("xl/") && /\.(xml|rels)$/.test(name);
      },
    });
  } catch (error) {
    throw new Error(`this is no XLSX file that can be read: ${error instanceof Error ? error.message : "unknown"}`);
  }
  const open = (path: string) => {
    const part = files[path];
    return part ? parseXml(strFromU8(part)) : undefined;
  };
  const workbook = open("xl/workbook.xml");
  if (!workbook) throw new Error("this is no XLSX file: it has no workbook");
  const targets = new Map(
    all(open("xl/_rels/workbook.xml.rels"), "Relationship").map((link) => [
      link.getAttribute("Id") ?? "", target(link.getAttribute("Target") ?? ""),
    ]),
  );
  const sheets = all(workbook, "sheet").map((sheet) => ({
    name: sheet.getAttribute("name") ?? "",
    isHidden: (sheet.getAttribute("state") ?? "visible") !== "visible",
    document: open(targets.get(sheet.getAttribute("r:id") ?? "") ?? ""),
  }));
  const book: Book = {
    strings: all(open("xl/sharedStrings.xml"), "si").map(textOf),
    dates: dateStyles(open("xl/styles.xml")),
  };
  // A sheet of charts has no cells.
  const shown = sheets.flatMap(({ name, isHidden, document }) =>
    name === FORMULAS || isHidden || all(document, "sheetData").length === 0 || !document ? [] : [{ name, rows: readSheet(document, book) }]);
  if (!shown[0]) throw new Error("the workbook has no sheet");
  const second = sheets.find(({ name }) => name === FORMULAS)?.document;
  if (second) restore(shown[0].rows, readSheet(second, { ...book, isPlain: true }));
  return shown;
}

/** Puts formulas back that only RelServe knows. */
function restore(rows: string[][], remembered: string[][]): void {
  const edited = new Set(remembered.flatMap(([name = "", what]) => (what === EDITED ? [name] : [])));
  for (const [name = "", formula = "", spill = ""] of remembered) {
    const [row, column] = place(name);
    if (row < 0 || !formula.startsWith("=")) continue;
    clear(rows, spill, edited);
    put(rows, row, column, formula);
  }
}

interface Book {
  strings: string[];
  /** Styles that show a number as a date. */
  dates: Set<string>;
  /** Whether text stays as it is, although it looks like a formula. */
  isPlain?: boolean;
}

function target(path: string): string {
  return path.startsWith("/") ? path.slice(1) : `xl/${path}`;
}

function all(node: Document | Element | undefined, name: string): Element[] {
  return node ? Array.from(node.getElementsByTagName(name)) : [];
}

/** The text of a string item, without the phonetic hints that Japanese files carry. */
function textOf(item: Element): string {
  const texts = all(item, "t").filter((text) => (text.parentNode as Element | null)?.nodeName !== "rPh");
  return texts.map((text) => text.textContent ?? "").join("");
}

function place(name: string): [number, number] {
  const parts = /^([A-Z]{1,3})(\d+)$/.exec(name);
  const [row, column] = [Number(parts?.[2] ?? 0) - 1, columnOf(parts?.[1] ?? "")];
  return row >= 0 && row < ROWS_MAX && column >= 0 && column < COLUMNS_MAX ? [row, column] : [-1, -1];
}

function put(rows: string[][], row: number, column: number, raw: string): void {
  while (rows.length <= row) rows.push([]);
  const line = rows[row] as string[];
  while (line.length < column) line.push("");
  line[column] = raw;
}

/** Empties an area, but for some cells: its values come out of a formula again. */
function clear(rows: string[][], area: string, stays: ReadonlySet<string> = new Set()): void {
  const [[row, column], [rowEnd, columnEnd]] = [place(area.split(":")[0] ?? ""), place(area.split(":")[1] ?? "")];
  if (row < 0 || rowEnd < 0) return;
  for (const [y, line] of rows.slice(row, rowEnd + 1).entries()) {
    for (let x = column; x <= columnEnd && x < line.length; x += 1) if (!stays.has(cellName(row + y, x))) line[x] = "";
  }
}

function readSheet(sheet: Document, book: Book): string[][] {
  const rows: string[][] = [];
  const arrays: { y: number; x: number; raw: string; area: string }[] = [];
  let row = -1;
  for (const line of all(sheet, "row")) {
    row = line.getAttribute("r") ? Number(line.getAttribute("r")) - 1 : row + 1;
    let column = -1;
    for (const cell of all(line, "c")) {
      const name = cell.getAttribute("r") ?? `${columnName(column + 1)}${row + 1}`;
      const [y, x] = place(name);
      column = x < 0 ? column + 1 : x;
      const raw = y < 0 ? "" : readCell(cell, book);
      if (raw !== "") put(rows, y, x, raw);
      const array = all(cell, "f").find((formula) => formula.getAttribute("t") === "array");
      if (array && raw !== "") arrays.push({ y, x, raw, area: array.getAttribute("ref") ?? "" });
    }
  }
  for (const { y, x, raw, area } of arrays) {
    clear(rows, area);
    put(rows, y, x, raw);
  }
  return rows;
}

function readCell(cell: Element, book: Book): string {
  const value = all(cell, "v")[0]?.textContent ?? "";
  const formula = all(cell, "f")[0]?.textContent ?? "";
  // A shared formula has its text in one cell only; elsewhere its last value stands, as where other sheets are read.
  const isElsewhere = formula.replace(/"[^"]*"|#\w+[!?]/g, "").includes("!");
  if (formula && !isElsewhere) return `=${formula.replace(/_xlfn\.|_xlws\./g, "")}`;
  switch (cell.getAttribute("t")) {
    case "s":
      return asText(book.strings[Number(value)] ?? "", book);
    case "inlineStr":
      return asText(all(cell, "is").map(textOf).join(""), book);
    case "str":
      return asText(value, book);
    case "b":
      return value === "1" ? "TRUE" : "FALSE";
    case "e":
      return value;
    default:
      return book.dates.has(cell.getAttribute("s") ?? "") ? date(Number(value)) : value;
  }
}

/** Text that would be read as something else gets the apostrophe that keeps it text. */
function asText(text: string, book: Book): string {
  const isOther = text.startsWith("=") || text.startsWith("'") || (text.trim() !== "" && !Number.isNaN(Number(text)));
  return isOther && !book.isPlain ? `'${text}` : text;
}

function dateStyles(styles: Document | undefined): Set<string> {
  const own = new Map(
    all(styles, "numFmt").map((format) => [format.getAttribute("numFmtId"), format.getAttribute("formatCode") ?? ""]),
  );
  const isDate = (id: string | null) => {
    const code = own.get(id);
    if (code !== undefined) return /[ymdhs]/i.test(code.replace(/"[^"]*"|\[[^\]]*\]|\\./g, ""));
    const number = Number(id);
    return (number >= 14 && number <= 22) || (number >= 45 && number <= 47);
  };
  const formats = all(all(styles, "cellXfs")[0], "xf");
  return new Set(formats.flatMap((format, i) => (isDate(format.getAttribute("numFmtId")) ? [String(i)] : [])));
}

/** Days since the end of 1899, as Excel counts them (with its 29 February 1900), as a date that sorts. */
function date(serial: number): string {
  if (!Number.isFinite(serial)) return "";
  const text = new Date(Math.round((serial - 25_569) * 86_400) * 1_000).toISOString();
  return serial % 1 === 0 ? text.slice(0, 10) : text.slice(0, 19).replace("T", " ");
}
