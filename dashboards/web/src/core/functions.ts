// The ordinary functions, from formulajs (MIT), named one by one: what is named is bundled, nothing else,
// and nothing that reads a clock or a network.

import * as library from "@formulajs/formulajs";

import { TEXT_MAX } from "./typed";

type Implementation = (...args: never[]) => unknown;

const TOO_LONG = new Error("#VALUE!");

/** What could make a text far larger than its arguments is measured before it is made. */
function repeat(text: unknown, times: unknown): unknown {
  return String(text ?? "").length * Number(times) > TEXT_MAX ? TOO_LONG : library.REPT(text as string, times as number);
}

function substitute(text: unknown, old: unknown, by: unknown, which?: unknown): unknown {
  const places = old === null || old === "" ? 0 : String(text ?? "").split(String(old)).length - 1;
  if (places * String(by ?? "").length > TEXT_MAX) return TOO_LONG;
  return library.SUBSTITUTE(text as string, old as string, by as string, which as number);
}

function join(between: unknown, skipsBlanks: unknown, ...texts: unknown[]): unknown {
  const all = texts.flat(2);
  const characters = all.reduce<number>((sum, text) => sum + String(text ?? "").length + String(between ?? "").length, 0);
  const slack = String(between ?? "").length;
  if (characters - slack > TEXT_MAX) return TOO_LONG;
  return library.TEXTJOIN(between as string, skipsBlanks as boolean, ...(texts as string[]));
}

/** Functions that read ranges and single values alike; those over numbers stand in `numeric.ts`, those that look for something in `evaluate.ts`. */
export const ORDINARY: Record<string, Implementation> = {
  SUMPRODUCT: library.SUMPRODUCT,
  ROUND: library.ROUND, ROUNDUP: library.ROUNDUP, ROUNDDOWN: library.ROUNDDOWN, INT: library.INT, MOD: library.MOD,
  TRUNC: library.TRUNC, MROUND: library.MROUND, CEILING: library.CEILING, FLOOR: library.FLOOR, SIGN: library.SIGN,
  ABS: library.ABS, SQRT: library.SQRT, POWER: library.POWER, EXP: library.EXP, LN: library.LN, LOG10: library.LOG10,
  LEN: library.LEN, UPPER: library.UPPER, LOWER: library.LOWER, PROPER: library.PROPER, TRIM: library.TRIM,
  LEFT: library.LEFT, RIGHT: library.RIGHT, MID: library.MID, FIND: library.FIND, SEARCH: library.SEARCH,
  SUBSTITUTE: substitute, REPLACE: library.REPLACE, REPT: repeat, EXACT: library.EXACT,
  TEXTJOIN: join, VALUE: library.VALUE, CHAR: library.CHAR, CODE: library.CODE,
  AND: library.AND, OR: library.OR, XOR: library.XOR, NOT: library.NOT,
  VLOOKUP: library.VLOOKUP, HLOOKUP: library.HLOOKUP, CHOOSE: library.CHOOSE, MATCH: library.MATCH, INDEX: library.INDEX,
};

/** Functions that look at errors instead of passing them on. */
export const COUNTING: Record<string, Implementation> = {
  COUNT: library.COUNT, COUNTA: library.COUNTA, COUNTBLANK: library.COUNTBLANK,
};
