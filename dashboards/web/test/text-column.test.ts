// Which column a new AI column is about.

import type { Table } from "relserve-client/column";
import type { Scalar } from "relserve-client/value";
import { expect, test } from "vitest";

import { textColumn } from "../src/core/text-column";

function check(rows: Scalar[][], expected: number | undefined): void {
  const headers = (rows[0] ?? []).map((_, column) => ({ name: `c${column}`, column }));
  const table: Table = { headers, first: 0, last: rows.length - 1, free: headers.length };
  expect(textColumn(table, (row, column) => rows[row]?.[column] ?? null)).toBe(expected);
}

test("the column with the longest texts is the one to ask about", () => {
  check([["Ada", "I love this product", 5], ["Bob", "Never again", 1]], 1);
  check([["a long text in one row", "short"], [null, "short"]], 0);
  check([[123_456_789_012, "a"], [123_456_789_012, "b"]], 1);
});

test("without texts it is the first one, without columns none", () => {
  check([[1, 2], [3, 4]], 0);
  check([[]], undefined);
});
