// XLSX both ways, on fflate (MIT) for the ZIP and no library for the rest: such a workbook is small, and
// the libraries that read and write formulas are unmaintained or several times this page. Loaded when needed.
//
// No other program knows `AI.*`, so a cell with an AI function leaves as its value; its formula is kept in a
// last sheet, from which an import into RelServe restores it. That sheet also names the cells in which an answer was
// typed over.

import { strFromU8, strToU8, unzipSync, zipSync } from "fflate";

import { getFormatFromId } from "numfmt";

import { COLUMNS_MAX, ROWS_MAX, cellName, columnName, columnOf } from "../core/address";
import { SERIAL_MAX, isoOf } from "../core/dates";
import { FORMAT_AREAS_MAX, type FormatArea, FROZEN_COLUMNS_MAX, FROZEN_ROWS_MAX, type Layout, PLAIN, keptLayout } from "../core/layout";
import { isDate } from "../core/number-format";
import { LENGTH_MAX, SHEET, sheetNamed } from "../core/parse";
import { sheetText } from "../core/references";
import { rawOf } from "../core/typed";
import { t } from "../text";

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
  /** Its number format. */
  format?: string;
}

/** A sheet on its way out. */
export interface OutSheet {
  name: string;
  rows: OutCell[][];
  frozenRows?: number;
  frozenColumns?: number;
}

/** The sheet that holds the AI formulas. */
const FORMULAS = "RelServe formulas";
/** What stands there beside a cell that was typed over. */
const EDITED = "edited";
/** Largest unpacked part that is read, and all of them together: a small file may claim to be a huge one. */
const PART_BYTES_MAX = 64 << 20;
const BYTES_MAX = 2 * PART_BYTES_MAX;
/** Longest text of a cell that Excel opens. */
const TEXT_MAX = 32_767;

const HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';
const MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const SPREADSHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml";
/** Own formats count from here. */
const FIRST_FORMAT = 164;
const PACKAGE = "http://schemas.openxmlformats.org/package/2006";

function escape(text: string): string {
  // Control characters have no place in XML 1.0.
  return text
    .replace(/[\u0000-\u0008\u000B\u000C\u000E-\u001F\uFFFE\uFFFF]/g, "")
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/** Functions that Excel knows in a file only under another name: those that came after its file format. */
const PREFIXES: Record<string, string> = {
  ...Object.fromEntries(["FILTER", "SORT"].map((name) => [name, "_xlfn._xlws."])),
  ...Object.fromEntries([
    "XLOOKUP", "UNIQUE", "SORTBY", "SEQUENCE", "IFS", "SWITCH", "TEXTJOIN", "CONCAT", "MAXIFS", "MINIFS", "IFNA", "XOR", "DAYS",
  ].map((name) => [name, "_xlfn."])),
};

/** A formula as a file has it; texts and names of sheets in quotes stay. */
function filed(formula: string): string {
  return formula.replace(/"[^"]*"|'[^']*'|[A-Za-z_][\w.]*(?=\()/g, (word) => (PREFIXES[word.toUpperCase()] ?? "") + word);
}

/** The formats of a workbook; a cell names its own by its place, 0 is none. */
class Styles {
  private readonly codes: string[] = [];

  /** What a cell has as its style. */
  attribute(code: string | undefined): string {
    if (!code) return "";
    if (!this.codes.includes(code)) this.codes.push(code);
    return ` s="${this.codes.indexOf(code) + 1}"`;
  }

  /** Excel opens no file whose styles lack a font, a fill and a border. */
  xml(): string {
    const own = this.codes.map((code, i) => `<numFmt numFmtId="${FIRST_FORMAT + i}" formatCode="${escape(code)}"/>`).join("");
    const cells = this.codes.map((_, i) => `<xf numFmtId="${FIRST_FORMAT + i}" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>`).join("");
    return `${HEAD}<styleSheet xmlns="${MAIN}">${own && `<numFmts count="${this.codes.length}">${own}</numFmts>`}` +
      '<fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>' +
      '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills>' +
      '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>' +
      '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>' +
      `<cellXfs count="${this.codes.length + 1}"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>${cells}</cellXfs></styleSheet>`;
  }
}

function cellXml(name: string, cell: OutCell, styles: Styles): string {
  const style = styles.attribute(cell.format);
  const array = cell.spill ? ` t="array" ref="${cell.spill}"` : "";
  const formula = cell.formula ? `<f${array}>${escape(filed(cell.formula))}</f>` : "";
  const text = typeof cell.value === "string" ? escape(cell.value.slice(0, TEXT_MAX)) : "";
  if (cell.error) return `<c r="${name}"${style} t="e">${formula}<v>${escape(cell.error)}</v></c>`;
  if (typeof cell.value === "number") return `<c r="${name}"${style}>${formula}<v>${cell.value}</v></c>`;
  if (typeof cell.value === "boolean") return `<c r="${name}"${style} t="b">${formula}<v>${Number(cell.value)}</v></c>`;
  if (cell.value === null) return formula || style ? `<c r="${name}"${style}>${formula}</c>` : "";
  if (formula) return `<c r="${name}"${style} t="str">${formula}<v>${text}</v></c>`;
  return `<c r="${name}"${style} t="inlineStr"><is><t xml:space="preserve">${text}</t></is></c>`;
}

function sheetXml({ rows, frozenRows = 0, frozenColumns = 0 }: Omit<OutSheet, "name">, styles: Styles): string {
  const splits = (frozenColumns ? ` xSplit="${frozenColumns}"` : "") + (frozenRows ? ` ySplit="${frozenRows}"` : "");
  const pane = frozenRows && frozenColumns ? "bottomRight" : frozenRows ? "bottomLeft" : "topRight";
  const views = splits &&
    `<sheetViews><sheetView workbookViewId="0"><pane${splits} topLeftCell="${cellName(frozenRows, frozenColumns)}" activePane="${pane}" state="frozen"/></sheetView></sheetViews>`;
  const lines = rows.map((row, y) => {
    const cells = row.map((cell, x) => cellXml(cellName(y, x), cell, styles)).join("");
    return cells ? `<row r="${y + 1}">${cells}</row>` : "";
  });
  return `${HEAD}<worksheet xmlns="${MAIN}">${views}<sheetData>${lines.join("")}</sheetData></worksheet>`;
}

/** What the second sheet remembers of a cell. */
function kept(name: string, { aiFormula, spill, isEdited }: OutCell): OutCell[][] {
  const line = aiFormula ? [name, aiFormula, spill ?? ""] : isEdited ? [name, EDITED] : [];
  return line.length > 0 ? [line.map((value) => ({ value }))] : [];
}

/** Excel refuses some letters in a sheet's name, quotes at its ends, and more than 31 letters. */
function titleOf(name: string): string {
  return name.replace(/[\\/?*[\]:]/g, " ").slice(0, 31).replace(/^[\s']+|[\s']+$/g, "") || "Sheet";
}

/** A workbook. */
export function writeXlsx(sheets: readonly OutSheet[]): Uint8Array {
  const remembered = sheets.flatMap(({ name, rows }, i) => rows.flatMap((row, y) =>
    row.flatMap((cell, x) => kept(`${i === 0 ? "" : `${sheetText(titleOf(name))}!`}${cellName(y, x)}`, cell))));
  const titled = sheets.map((sheet) => ({ ...sheet, name: titleOf(sheet.name) === FORMULAS ? "Sheet" : titleOf(sheet.name) }));
  const written = remembered.length > 0 ? [...titled, { name: FORMULAS, rows: remembered }] : titled;
  const numbers = written.map((_, i) => i + 1);
  const listed = written.map(({ name }, i) => `<sheet name="${escape(name)}" sheetId="${i + 1}" r:id="rId${i + 1}"/>`);
  const links = numbers.map((number) => `<Relationship Id="rId${number}" Type="${OFFICE}/worksheet" Target="worksheets/sheet${number}.xml"/>`);
  const styled = `<Relationship Id="rId${written.length + 1}" Type="${OFFICE}/styles" Target="styles.xml"/>`;
  const parts = numbers.map((number) => `<Override PartName="/xl/worksheets/sheet${number}.xml" ContentType="${SPREADSHEET}.worksheet+xml"/>`);
  const styles = new Styles();
  const worksheets = written.map((sheet, i) => [`xl/worksheets/sheet${i + 1}.xml`, sheetXml(sheet, styles)]);
  const files: Record<string, string> = {
    "[Content_Types].xml": `${HEAD}<Types xmlns="${PACKAGE}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="${SPREADSHEET}.sheet.main+xml"/><Override PartName="/xl/styles.xml" ContentType="${SPREADSHEET}.styles+xml"/>${parts.join("")}</Types>`,
    "_rels/.rels": `${HEAD}<Relationships xmlns="${PACKAGE}/relationships"><Relationship Id="rId1" Type="${OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
    "xl/workbook.xml": `${HEAD}<workbook xmlns="${MAIN}" xmlns:r="${OFFICE}"><sheets>${listed.join("")}</sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": `${HEAD}<Relationships xmlns="${PACKAGE}/relationships">${links.join("")}${styled}</Relationships>`,
    ...Object.fromEntries(worksheets),
    "xl/styles.xml": styles.xml(),
  };
  return zipSync(Object.fromEntries(Object.entries(files).map(([path, text]) => [path, strToU8(text)])));
}

/** Makes a document of XML; the browser's parser, or a test's. */
export type ParseXml = (text: string) => Document;

/** A sheet of a workbook, as what would be typed. */
export interface ReadSheet {
  name: string;
  rows: string[][];
  /** Formats, and what is frozen, where there is any. */
  layout?: Layout;
}

/** The sheets of a workbook that are not hidden, one at least. Throws with words for people. */
export function readXlsx(bytes: Uint8Array, parseXml: ParseXml): ReadSheet[] {
  let files: Record<string, Uint8Array>;
  let left = BYTES_MAX;
  try {
    files = unzipSync(bytes, {
      filter: ({ name, originalSize }) => {
        if (originalSize > PART_BYTES_MAX) throw new Error(t.failure.partMax(name, PART_BYTES_MAX >> 20));
        const isRead = name.startsWith("xl/") && /\.(xml|rels)$/.test(name);
        if (isRead) left -= originalSize;
        if (left < 0) throw new Error(t.failure.unpacksMax(BYTES_MAX >> 20));
        return isRead;
      },
    });
  } catch (error) {
    throw new Error(t.failure.noXlsx(error instanceof Error ? error.message : t.failure.unknown));
  }
  const open = (path: string) => {
    const part = files[path];
    return part ? parseXml(strFromU8(part)) : undefined;
  };
  const workbook = open("xl/workbook.xml");
  if (!workbook) throw new Error(t.failure.noWorkbook);
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
    formats: formatsOf(open("xl/styles.xml")),
    names: new Set(sheets.filter(({ isHidden }) => !isHidden).map(({ name }) => name.toLowerCase())),
  };
  // A sheet of charts has no cells.
  const shown = sheets.flatMap(({ name, isHidden, document }) =>
    name === FORMULAS || isHidden || all(document, "sheetData").length === 0 || !document ? [] : [{ name, ...readSheet(document, book) }]);
  if (!shown[0]) throw new Error(t.failure.noSheet);
  const second = sheets.find(({ name }) => name === FORMULAS)?.document;
  if (second) restore(shown, readSheet(second, { ...book, isPlain: true }).rows);
  return shown;
}

/** Puts formulas back that only RelServe knows. */
function restore(sheets: readonly ReadSheet[], remembered: string[][]): void {
  const edited = new Set(remembered.flatMap(([name = "", what]) => (what === EDITED ? [name] : [])));
  for (const [name = "", formula = "", spill = ""] of remembered) {
    const [, sheet = "", cell = ""] = /^(?:(.*)!)?([^!]*)$/.exec(name) ?? [];
    const { rows } = sheets.find((one) => one.name === sheetNamed(`${sheet}!`)) ?? (sheets[0] as ReadSheet);
    const [row, column] = place(cell);
    if (row < 0 || !formula.startsWith("=")) continue;
    clear(rows, spill, edited, sheet ? `${sheet}!` : "");
    put(rows, row, column, formula);
  }
}

interface Book {
  strings: string[];
  /** Number formats by style. */
  formats: Map<string, string>;
  /** The sheets that a formula may read, in small letters. */
  names: ReadonlySet<string>;
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
function clear(rows: string[][], area: string, stays: ReadonlySet<string> = new Set(), sheet = ""): void {
  const [[row, column], [rowEnd, columnEnd]] = [place(area.split(":")[0] ?? ""), place(area.split(":")[1] ?? "")];
  if (row < 0 || rowEnd < 0) return;
  for (const [y, line] of rows.slice(row, rowEnd + 1).entries()) {
    for (let x = column; x <= columnEnd && x < line.length; x += 1) if (!stays.has(sheet + cellName(row + y, x))) line[x] = "";
  }
}

function readSheet(sheet: Document, book: Book): { rows: string[][]; layout?: Layout } {
  const rows: string[][] = [];
  const runs = new FormatRuns();
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
      if (y >= 0) runs.add(y, x, book.formats.get(cell.getAttribute("s") ?? "") ?? "");
      if (raw !== "") put(rows, y, x, raw);
      const array = all(cell, "f").find((formula) => formula.getAttribute("t") === "array");
      if (array && raw !== "") arrays.push({ y, x, raw, area: array.getAttribute("ref") ?? "" });
    }
  }
  for (const { y, x, raw, area } of arrays) {
    clear(rows, area);
    put(rows, y, x, raw);
  }
  const pane = all(sheet, "pane").find((one) => one.getAttribute("state") === "frozen");
  const frozen = (name: string, most: number) => Math.min(most, Math.floor(Number(pane?.getAttribute(name) ?? 0)));
  const layout = keptLayout({
    ...PLAIN, formats: runs.areas(), frozenRows: frozen("ySplit", FROZEN_ROWS_MAX), frozenColumns: frozen("xSplit", FROZEN_COLUMNS_MAX),
  });
  return { rows, ...(layout ? { layout } : {}) };
}

/** Formats cell by cell, row by row, as areas down their columns. */
class FormatRuns {
  private readonly open = new Map<number, FormatArea>();
  private readonly done: FormatArea[] = [];

  add(row: number, column: number, code: string): void {
    const run = this.open.get(column);
    // A cell that is left out between two has no format.
    if (run?.code === code && run.rowEnd === row - 1) run.rowEnd = row;
    else {
      this.end(column);
      if (code !== "") this.open.set(column, { row, rowEnd: row, column, columnEnd: column, code });
    }
  }

  areas(): FormatArea[] {
    for (const column of [...this.open.keys()]) this.end(column);
    return this.done.slice(0, FORMAT_AREAS_MAX);
  }

  private end(column: number): void {
    const run = this.open.get(column);
    if (run) this.done.push(run);
    this.open.delete(column);
  }
}

function readCell(cell: Element, book: Book): string {
  const value = all(cell, "v")[0]?.textContent ?? "";
  const formula = all(cell, "f")[0]?.textContent ?? "";
  // A shared formula has its text in one cell only; elsewhere its last value stands, as where sheets are read that are not here.
  const isRead = formula !== "" && formula.length <= LENGTH_MAX && readsKnown(formula, book.names);
  if (isRead) return `=${formula.replace(/_xlfn\.|_xlws\./g, "")}`;
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
      return value !== "" && isDate(book.formats.get(cell.getAttribute("s") ?? "") ?? "") ? dated(value) : value;
  }
}

/** Text that would be read as something else gets the apostrophe that keeps it text. */
function asText(text: string, book: Book): string {
  const isOther = rawOf(text) !== text || (text.trim() !== "" && !Number.isNaN(Number(text)));
  return isOther && !book.isPlain ? `'${text}` : text;
}

/** Whether all sheets are there that a formula names. */
function readsKnown(formula: string, names: ReadonlySet<string>): boolean {
  const bare = formula.replace(/"[^"]*"|#\w+[!?]/g, "");
  if (!bare.includes("!")) return true;
  // In brackets: another file.
  const named = [...bare.matchAll(new RegExp(SHEET, "gu"))].map(([text]) => sheetNamed(text).toLowerCase());
  return !bare.includes("[") && named.length > 0 && named.every((name) => names.has(name));
}

/** The number formats of styles; general ones are left out. */
function formatsOf(styles: Document | undefined): Map<string, string> {
  const own = new Map(
    all(styles, "numFmt").map((format) => [format.getAttribute("numFmtId"), format.getAttribute("formatCode") ?? ""]),
  );
  const code = (id: string | null) => own.get(id) ?? (Number(id) > 0 ? getFormatFromId(Number(id)) : "");
  const cells = all(all(styles, "cellXfs")[0], "xf").map((format, i) => [String(i), code(format.getAttribute("numFmtId"))] as const);
  return new Map(cells.filter(([, format]) => format && format !== "General"));
}

/** The first day that every program counts alike: Excel has a 29th of February 1900. */
const FIRST_DAY = 61;

/** A number of days as a date that sorts; a time alone, and what is no date, stays the number that its format shows. */
function dated(value: string): string {
  const serial = Number(value);
  return serial >= FIRST_DAY && serial < SERIAL_MAX + 1 ? isoOf(serial) : value;
}
