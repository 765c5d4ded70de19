// The ordinary functions, from formulajs (MIT), named one by one: what is named is bundled, nothing else,
// and nothing that reads a clock or a network.

import * as library from "@formulajs/formulajs";

type Implementation = (...args: never[]) => unknown;

/** Functions that read ranges and single values alike. */
export const ORDINARY: Record<string, Implementation> = {
  SUM: library.SUM, AVERAGE: library.AVERAGE, MIN: library.MIN, MAX: library.MAX, MEDIAN: library.MEDIAN,
  PRODUCT: library.PRODUCT, SUMIF: library.SUMIF, AVERAGEIF: library.AVERAGEIF, SUMPRODUCT: library.SUMPRODUCT,
  ROUND: library.ROUND, ROUNDUP: library.ROUNDUP, ROUNDDOWN: library.ROUNDDOWN, INT: library.INT, MOD: library.MOD,
  ABS: library.ABS, SQRT: library.SQRT, POWER: library.POWER, EXP: library.EXP, LN: library.LN, LOG10: library.LOG10,
  STDEV: library.STDEVS, VAR: library.VARS, LARGE: library.LARGE, SMALL: library.SMALL,
  LEN: library.LEN, UPPER: library.UPPER, LOWER: library.LOWER, PROPER: library.PROPER, TRIM: library.TRIM,
  LEFT: library.LEFT, RIGHT: library.RIGHT, MID: library.MID, FIND: library.FIND, SEARCH: library.SEARCH,
  SUBSTITUTE: library.SUBSTITUTE, REPLACE: library.REPLACE, REPT: library.REPT, EXACT: library.EXACT,
  TEXTJOIN: library.TEXTJOIN, VALUE: library.VALUE, CHAR: library.CHAR, CODE: library.CODE,
  AND: library.AND, OR: library.OR, XOR: library.XOR, NOT: library.NOT,
  VLOOKUP: library.VLOOKUP, MATCH: library.MATCH, INDEX: library.INDEX,
};

/** Functions that look at errors instead of passing them on. */
export const COUNTING: Record<string, Implementation> = {
  COUNT: library.COUNT, COUNTA: library.COUNTA, COUNTIF: library.COUNTIF, COUNTBLANK: library.COUNTBLANK,
};
