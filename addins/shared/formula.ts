// Formulas as texts: which are ours, and the kept answer put into one and taken out of it again. Only a formula
// that is one call and nothing else is rewritten; any other is left as it is.

import type { AiFunction } from "relserve-client/catalogue";

import { FUNCTIONS } from "./help";

/** A formula that is one AI call. */
interface Parts {
  /** The name as it is written. */
  name: string;
  args: string[];
  /** What parts arguments: a semicolon where commas are decimal. */
  separator: string;
  /** The function; its kept answer comes after its arguments. */
  item: AiFunction;
}

/** Whether a formula calls an AI function anywhere. `mark` is what stands between AI and the name. */
export function isAi(formula: string, mark: "." | "_"): boolean {
  const names = FUNCTIONS.map((item) => item.name.toUpperCase()).join("|");
  const texts = /"(?:[^"]|"")*"/g;
  return formula.startsWith("=") && new RegExp(`\\bAI\\${mark}(${names})\\s*\\(`, "i").test(formula.replace(texts, '""'));
}

function parse(formula: string, mark: "." | "_"): Parts | undefined {
  const found = new RegExp(`^=\\s*(AI\\${mark}([A-Z]+))\\s*\\(`, "i").exec(formula);
  const item = FUNCTIONS.find(({ name }) => name.toUpperCase() === found?.[2]?.toUpperCase());
  if (!found?.[1] || !item) return undefined;
  const cuts: { at: number; by: string }[] = [];
  let depth = 1;
  let quote = "";
  let end = -1;
  for (let at = found[0].length; at < formula.length; at += 1) {
    const character = formula[at] ?? "";
    if (quote) {
      if (character === quote) quote = "";
    } else if (character === '"' || character === "'") {
      quote = character;
    } else if ("({".includes(character)) {
      depth += 1;
    } else if (")}".includes(character)) {
      depth -= 1;
      if (depth === 0) {
        end = at;
        break;
      }
    } else if (depth === 1 && ",;".includes(character)) {
      cuts.push({ at, by: character });
    }
  }
  if (end < 0 || formula.slice(end + 1).trim() !== "") return undefined;
  // Where a comma is decimal, `;` parts arguments and a comma at this depth is part of a number.
  const separator = cuts.some(({ by }) => by === ";") ? ";" : ",";
  const bounds = [found[0].length - 1, ...cuts.filter(({ by }) => by === separator).map(({ at }) => at), end];
  const args = bounds.slice(1).map((to, i) => formula.slice((bounds[i] ?? 0) + 1, to).trim());
  return { name: found[1], args, separator, item };
}

/** How many cells a formula fills, as far as it says so itself; `undefined` rows: nobody knows without its values. */
export interface Shape {
  rows: number | undefined;
  columns: number;
}

/** The shape of a formula's answer. */
export function shapeOf(formula: string, mark: "." | "_"): Shape {
  const parts = parse(formula, mark);
  if (!parts) return { rows: formula.includes(":") ? undefined : 1, columns: 1 };
  const over = parts.args[parts.item.over] ?? "";
  const isList = parts.item.name === "list";
  const found = /^(?:(?:'[^']*'|\w+)!)?\$?([A-Z]{1,3})\$?(\d+)(?::\$?([A-Z]{1,3})\$?(\d+))?$/i.exec(over);
  if (!found) return { rows: /^"[^"]*"$/.test(over) && !isList ? 1 : undefined, columns: 1 };
  const [, left = "", top = "", right = left, bottom = top] = found;
  const rows = Math.abs(Number(bottom) - Number(top)) + 1;
  const columns = Math.abs(columnOf(right) - columnOf(left)) + 1;
  // One prompt's list spills down as far as it is long; within a range a list shares its cell.
  return rows === 1 && columns === 1 && isList ? { rows: undefined, columns: 1 } : { rows, columns };
}

function columnOf(letters: string): number {
  return [...letters.toUpperCase()].reduce((sum, letter) => sum * 26 + letter.charCodeAt(0) - 64, 0);
}

function literal(cell: string | number | boolean): string {
  if (typeof cell === "boolean") return cell ? "TRUE" : "FALSE";
  // A number with a fraction is written differently in every locale; answers have none.
  return typeof cell === "number" && Number.isInteger(cell) ? String(cell) : `"${String(cell).replace(/"/g, '""')}"`;
}

/** The longest text that a formula may hold in Excel (a text of its own, and the whole in bytes of storage). */
const TEXT_MAX = 255;
const FORMULA_MAX = 8_192;

/**
 * The formula with its answer as the last argument; a string that says why where that cannot be. A column of answers
 * becomes an array constant: rows are parted by `;` in every locale, columns are not, so wider ranges are refused.
 */
export function withKept(
  formula: string, values: (string | number | boolean | null)[][], mark: "." | "_",
): { formula: string } | { reason: string } {
  const parts = parse(formula, mark);
  if (!parts) return { reason: "it is more than one AI call: keep it as a value" };
  if (values.some((row) => row.length !== 1)) return { reason: "its answer has several columns: keep it as values" };
  const cells = values.map((row) => row[0] ?? "");
  if (cells.some((cell) => String(cell).length > TEXT_MAX)) {
    return { reason: `an answer has more than ${TEXT_MAX} characters: keep it as a value` };
  }
  const written = cells.map(literal);
  const kept = written.length === 1 ? written[0] ?? '""' : `{${written.join(";")}}`;
  const args = Array.from({ length: parts.item.arguments.length }, (_, i) => parts.args[i] ?? "");
  const whole = `=${parts.name}(${[...args, kept].join(parts.separator)})`;
  return whole.length > FORMULA_MAX ? { reason: "the formula would be too long: keep it as values" } : { formula: whole };
}

/** The formula without its kept answer; `undefined` where it has none. */
export function withoutKept(formula: string, mark: "." | "_"): string | undefined {
  const parts = parse(formula, mark);
  const arity = parts?.item.arguments.length ?? 0;
  if (!parts || parts.args.length <= arity) return undefined;
  const args = parts.args.slice(0, arity);
  while (args.length > 1 && args[args.length - 1] === "") args.pop();
  return `=${parts.name}(${args.join(parts.separator)})`;
}
