// Formulas as trees. The grid's own engine builds JavaScript source out of formulas and cell texts and runs
// it: a quote in an imported cell would be code. This parser never makes code, so the page needs no `eval`.

import type { ErrorCode } from "relserve-client/value";

import { t } from "../text";
import { type Area, COLUMNS_MAX, ROWS_MAX, columnOf } from "./address";

/** An expression. */
export type Node =
  | { kind: "number"; value: number }
  | { kind: "text"; value: string }
  | { kind: "boolean"; value: boolean }
  | { kind: "error"; code: ErrorCode; note: string }
  | { kind: "missing" }
  | { kind: "area"; area: Area; isCell: boolean; sheet?: string }
  | { kind: "array"; rows: Node[][] }
  | { kind: "unary"; operator: string; operand: Node }
  | { kind: "binary"; operator: string; left: Node; right: Node }
  | { kind: "call"; name: string; args: Node[] };

/** A formula that cannot be read; `at` counts characters after the `=`. */
export class FormulaError extends Error {
  constructor(message: string, readonly at: number) {
    super(t.formula.at(message, at + 1));
  }
}

interface Token {
  kind: "number" | "text" | "word" | "sign" | "error" | "sheet" | "end";
  text: string;
  at: number;
}

/** The sheet that a reference names, with its `!`: in quotes where it is more than a word. */
export const SHEET = "(?:'(?:[^']|'')+'|[\\p{L}_][\\p{L}\\d_.]*)!";

/** The name in such a text. */
export function sheetNamed(text: string): string {
  const name = text.slice(0, -1);
  return name.startsWith("'") ? name.slice(1, -1).replaceAll("''", "'") : name;
}

const TOKEN = new RegExp(
  [
    "(?<space>\\s+)",
    "(?<number>(?:\\d+\\.?\\d*|\\.\\d+)(?:[eE][+-]?\\d+)?(?![A-Za-z_]))",
    '(?<text>"(?:[^"]|"")*")',
    "(?<error>#(?:N/A|VALUE!|REF!|NAME\\?|DIV/0!|NUM!|NULL!|SPILL!|ERROR!|STOPPED!))",
    `(?<sheet>${SHEET})`,
    "(?<word>\\$?[A-Za-z_][A-Za-z0-9_.$]*|\\$?\\d+)",
    "(?<sign><=|>=|<>|[-+*/^&=<>%(),;:{}])",
  ].join("|"),
  "yu",
);

/** Longest formula that is read, as in Excel. */
export const LENGTH_MAX = 8_192;
/** Deepest nesting: far above what people write, far below what a stack holds. */
const DEPTH_MAX = 64;
/** Deepest tree: a sum of so many terms, each on top of the sum before it. */
const TREE_MAX = 1_000;

/** The words and signs of a formula without its `=`. Throws `FormulaError`. */
export function tokens(source: string): Token[] {
  const out: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < source.length) {
    const at = TOKEN.lastIndex;
    const groups = TOKEN.exec(source)?.groups;
    if (!groups) throw new FormulaError(t.formula.notUnderstood(source[at] ?? ""), at);
    const kind = (["number", "text", "error", "sheet", "word", "sign"] as const).find((name) => groups[name] !== undefined);
    if (kind) out.push({ kind, text: groups[kind] ?? "", at });
  }
  out.push({ kind: "end", text: "", at: source.length });
  return out;
}

/** How strongly operators bind; `%` is handled apart. A sign binds more than `^`, as in every spreadsheet: `-2^2` is 4. */
const BINDING: Record<string, number> = {
  "=": 1, "<>": 1, "<": 1, ">": 1, "<=": 1, ">=": 1, "&": 2, "+": 3, "-": 3, "*": 4, "/": 4, "^": 6,
};
const SIGN_BINDING = 7;

class Parser {
  private next = 0;
  private depth = 0;

  constructor(private readonly list: Token[]) {}

  whole(): Node {
    const node = this.expression(0);
    const { kind, text, at } = this.peek();
    if (kind !== "end") throw new FormulaError(t.formula.tooMany(text), at);
    if (isTooDeep(node)) throw new FormulaError(t.formula.tooManySteps(TREE_MAX), 0);
    return node;
  }

  private peek(ahead = 0): Token {
    return this.list[Math.min(this.next + ahead, this.list.length - 1)] as Token;
  }

  private take(): Token {
    const token = this.peek();
    this.next += 1;
    return token;
  }

  private takes(sign: string): boolean {
    const { kind, text } = this.peek();
    if (kind !== "sign" || text !== sign) return false;
    this.next += 1;
    return true;
  }

  private expect(sign: string): void {
    const { at, text } = this.peek();
    if (!this.takes(sign)) throw new FormulaError(t.formula.missing(sign, text || t.formula.end), at);
  }

  private expression(least: number): Node {
    this.depth += 1;
    if (this.depth > DEPTH_MAX) throw new FormulaError(t.formula.tooDeep, this.peek().at);
    let left = this.prefix();
    for (;;) {
      if (this.takes("%")) {
        left = { kind: "unary", operator: "%", operand: left };
        continue;
      }
      const { kind, text } = this.peek();
      const binding = kind === "sign" ? BINDING[text] : undefined;
      if (binding === undefined || binding < least) break;
      this.next += 1;
      left = { kind: "binary", operator: text, left, right: this.expression(binding + 1) };
    }
    this.depth -= 1;
    return left;
  }

  private prefix(): Node {
    const token = this.take();
    switch (token.kind) {
      case "number":
        // `2:5` would be whole rows; a number before a colon is read there.
        return { kind: "number", value: Number(token.text) };
      case "text":
        return { kind: "text", value: token.text.slice(1, -1).replaceAll('""', '"') };
      case "error":
        return this.deleted(token);
      case "sheet": {
        const next = this.take();
        const node = next.kind === "error" ? this.deleted(next) : this.word(next);
        if (node.kind === "area") return { ...node, sheet: sheetNamed(token.text) };
        if (node.kind === "error") return node;
        throw new FormulaError(t.formula.notFollowed(token.text), token.at);
      }
      case "word":
        return this.word(token);
      case "sign":
        break;
      case "end":
        throw new FormulaError(t.formula.endsEarly, token.at);
    }
    if (token.text === "-" || token.text === "+") {
      return { kind: "unary", operator: token.text, operand: this.expression(SIGN_BINDING) };
    }
    if (token.text === "(") {
      const inner = this.expression(0);
      this.expect(")");
      return inner;
    }
    if (token.text === "{") return this.array();
    throw new FormulaError(t.formula.notUnderstood(token.text), token.at);
  }

  private deleted({ text }: Token): Node {
    return { kind: "error", code: text as ErrorCode, note: text === "#REF!" ? t.formula.deleted : "" };
  }

  private array(): Node {
    const rows: Node[][] = [[]];
    for (;;) {
      rows.at(-1)?.push(this.expression(0));
      if (this.takes("}")) return { kind: "array", rows };
      if (this.takes(";")) rows.push([]);
      else this.expect(",");
    }
  }

  private word(token: Token): Node {
    const { text, at } = token;
    if (this.takes("(")) return { kind: "call", name: text.toUpperCase(), args: this.args() };
    if (/^true$/i.test(text)) return { kind: "boolean", value: true };
    if (/^false$/i.test(text)) return { kind: "boolean", value: false };
    const start = corner(text);
    if (!start) return { kind: "error", code: "#NAME?", note: t.formula.noName(text) };
    if (!this.takes(":")) {
      if (start.row === undefined || start.column === undefined) {
        return { kind: "error", code: "#NAME?", note: t.formula.noCell(text) };
      }
      const { row, column } = start;
      return { kind: "area", area: { row, column, rowEnd: row, columnEnd: column }, isCell: true };
    }
    const end = corner(this.take().text);
    if (!end || (end.row === undefined) !== (start.row === undefined) || start.column === undefined) {
      throw new FormulaError(t.formula.range, at);
    }
    return { kind: "area", area: area(start, end), isCell: false };
  }

  private args(): Node[] {
    const args: Node[] = [];
    if (this.takes(")")) return args;
    for (;;) {
      const { kind, text } = this.peek();
      const isMissing = kind === "sign" && (text === "," || text === ";" || text === ")");
      args.push(isMissing ? { kind: "missing" } : this.expression(0));
      if (this.takes(")")) return args;
      // Sheets of many languages separate with `;`.
      if (!this.takes(";")) this.expect(",");
    }
  }
}

/** Whether what goes through a tree by calls would run out of stack. Goes through it without. */
function isTooDeep(tree: Node): boolean {
  let level = [tree];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > TREE_MAX) return true;
    level = level.flatMap(partsOf);
  }
  return false;
}

function partsOf(node: Node): readonly Node[] {
  switch (node.kind) {
    case "array": return node.rows.flat();
    case "unary": return [node.operand];
    case "binary": return [node.left, node.right];
    case "call": return node.args;
    default: return [];
  }
}

interface Corner {
  row: number | undefined;
  column: number | undefined;
}

function corner(text: string): Corner | undefined {
  const parts = /^\$?([A-Za-z]{1,3})(?:\$?([1-9]\d*))?$/.exec(text);
  if (!parts) return undefined;
  const column = columnOf(parts[1] ?? "");
  const row = parts[2] === undefined ? undefined : Number(parts[2]) - 1;
  if (column >= COLUMNS_MAX || (row !== undefined && row >= ROWS_MAX)) return undefined;
  return { row, column };
}

function area(start: Corner, end: Corner): Area {
  const [row, rowEnd] = [start.row ?? 0, end.row ?? ROWS_MAX - 1];
  const [column, columnEnd] = [start.column ?? 0, end.column ?? COLUMNS_MAX - 1];
  return {
    row: Math.min(row, rowEnd),
    rowEnd: Math.max(row, rowEnd),
    column: Math.min(column, columnEnd),
    columnEnd: Math.max(column, columnEnd),
  };
}

/** Reads a formula, with its `=`. Throws `FormulaError`. */
export function parse(formula: string): Node {
  const source = formula.slice(1);
  if (source.length > LENGTH_MAX) throw new FormulaError(t.formula.tooLong(LENGTH_MAX), LENGTH_MAX);
  return new Parser(tokens(source)).whole();
}

/** An area that an expression reads, and the other sheet that it is of, if it is. */
export interface Read {
  area: Area;
  sheet: string | undefined;
}

/** The areas that an expression reads. */
export function readsOf(node: Node, out: Read[] = []): Read[] {
  if (node.kind === "area") out.push({ area: node.area, sheet: node.sheet });
  for (const part of partsOf(node)) readsOf(part, out);
  return out;
}
