// Sizes in words.

import { expect, test } from "vitest";

import { bytesText } from "../src/core/bytes";

test.each([
  [0, "0 bytes"], [417, "417 bytes"], [1_024, "1 KiB"], [20_480, "20 KiB"], [1_572_864, "1.5 MiB"], [67_108_864, "64 MiB"],
  [10_430_000, "9.9 MiB"], [5 * 1_024 ** 4, "5 TiB"], [5_000 * 1_024 ** 4, "5,000 TiB"],
])("%d is %s", (bytes, words) => expect(bytesText(bytes)).toBe(words));
