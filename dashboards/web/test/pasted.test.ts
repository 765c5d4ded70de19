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

test("a table with a space behind each comma is split, quoted cells whole", () => {
  expect(pastedCsv("Name, City, Age\nAda, London, 36\nBob, Berlin, 41\n")).toEqual([
    ["Name", "City", "Age"], ["Ada", "London", "36"], ["Bob", "Berlin", "41"],
  ]);
  expect(pastedCsv('id, review, stars\n1, "I love it, really", 5\n2, broke at once and nobody answers., 1')).toEqual([
    ["id", "review", "stars"], ["1", "I love it, really", "5"], ["2", "broke at once and nobody answers.", "1"],
  ]);
  for (const [text, columns] of [
    ["name, city, job title\nAda, London, Engineer", 3], ["Name, City, Role\nAda, London, Engineer\nBob, , Night Nurse", 3], ["a; b; c\nx; 2,50 €; y\nz; 3,00 €; q", 3],
    ["Order, Day, Paid\nA-1, 2026-03-01, yes\nB-2, 2026-03-02, no", 3], ["1, 2, 3\n4, 5, 6", 3],
    ["Ort,  Straße, Nummer, Offen\nUlm, Am Markt, 12a, 9:00\n\nBonn, Hofweg, 3, 10:30", 4],
  ] as const) expect(pastedCsv(text)?.map((row) => row.length), text).toEqual(Array.from({ length: text.split(/\n+/).length }, () => columns));
});

test("lines of prose with commas stay lines", () => {
  for (const text of [
    "Great film, good actors, bad ending.\nLong, dull, and far too loud.", "I came, I saw, I won\nYou came, you saw, you lost",
    "Name, City\nAda, London", "cheap, fast, good\nslow, dear, bad", "Well, I called, Tom\nNo, I wrote, Ann",
    "Dear Ada, thanks for the parcel, it came\nDear Bob, the parcel is broken, sorry", "Fine, thanks, Tom!\nGood, bye, Ann!",
    "We met in May, in Ulm, on the 5th\nThey met in June, in Bonn, on the 6th", "a, b, c\nd, e",
  ]) expect(pastedCsv(text), text).toBeUndefined();
});
