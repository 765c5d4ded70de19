// Lists that come page by page.

import { expect, test } from "vitest";

import { type Page, readPages } from "../src/core/pages";

/** Reads of a list of numbers, so many at a time. */
const reader = (list: readonly number[], rows: number, asked: (number | undefined)[] = []) => async (before: number | undefined): Promise<Page<number>> => {
  asked.push(before);
  const left = list.filter((number) => before === undefined || number < before);
  const data = left.slice(-rows);
  return { data, before: left.length > rows ? data[0]! : null };
};

test("a list is whole and in its order, however many pages it has", async () => {
  const list = [1, 2, 3, 5, 8, 13, 21];
  for (const rows of [1, 2, 3, 6, 7, 8]) expect(await readPages(reader(list, rows))).toEqual(list);
  expect(await readPages(reader([], 3))).toEqual([]);
});

test("no page is asked for behind the last", async () => {
  const asked: (number | undefined)[] = [];
  await readPages(reader([1, 2, 3, 4], 2, asked));
  expect(asked).toEqual([undefined, 3]);
});

test("what a page fails with is thrown", async () => {
  const read = (before: number | undefined): Promise<Page<number>> =>
    before === undefined ? Promise.resolve({ data: [7], before: 7 }) : Promise.reject(new Error("away"));
  await expect(readPages(read)).rejects.toThrow("away");
});
