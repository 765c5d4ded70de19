// Pasted texts: which of them are tables.

import { expect, test } from "vitest";

import { pastedCsv } from "../src/core/pasted";

test("a CSV is split into its columns, quoted cells and their lines whole", () => {
  expect(pastedCsv('Name,Review\r\nAda,"I love it, really"\r\nBob,"broke\nat once"\r\n')).toEqual([
    ["Name", "Review"], ["Ada", "I love it, really"], ["Bob", "broke\nat once"],
  ]);
  expect(pastedCsv("Name;Preis\nBrot;2,50\n\nMilch;1,20")).toEqual([["Name", "Preis"], ["Brot", "2,50"], ["Milch", "1,20"]]);
});

test("what may be lines of text stays as it is", () => {
  for (const text of [
    "Great, thanks\nNice, but late", "one line, with a comma", "a,b,c", "1,5\n2,5", "1,000\n2,500", "1,5;2\n2,5;3", "a,b\nc", "a\tb,c\nd\te,f", "a\nb",
    'he said "hm\nand, then', "",
  ]) expect(pastedCsv(text), text).toBeUndefined();
});
