// Lists that are shown page by page.

import { expect, test } from "vitest";

import { type Page, PagedList, type ShownPage } from "../src/core/pages";

/** A list of numbers as a server gives it, a hundred at a time; of what is sought, the even ones. */
function numbers(count: number) {
  const [asked, drawn]: [(number | undefined)[], ShownPage<number>[]] = [[], []];
  const list = Array.from({ length: count }, (_, at) => at + 1);
  const read = async (sought: string, before: number | undefined): Promise<Page<number>> => {
    asked.push(before);
    const left = list.filter((number) => (before === undefined || number < before) && (sought === "" || number % 2 === 0));
    const data = left.slice(-100);
    return { data, before: left.length > 100 ? data[0]! : null };
  };
  const pages = new PagedList(read, (page) => drawn.push(page));
  /** What the page that was drawn last has: its number, its first and last entry, whether there are older ones. */
  const last = () => {
    const { number, entries, hasOlder } = drawn.at(-1)!;
    return [number, entries[0], entries.at(-1), hasOlder];
  };
  return { pages, asked, drawn, last, list };
}

/** A reply that comes when it is told to, and what the list has drawn. */
function slow() {
  const replies: { before: number | undefined; give: (page: Page<number>) => void; fail: (error: Error) => void }[] = [];
  const drawn: ShownPage<number>[] = [];
  const read = (_: string, before: number | undefined) =>
    new Promise<Page<number>>((give, fail) => replies.push({ before, give, fail }));
  return { pages: new PagedList(read, (page) => drawn.push(page)), replies, drawn };
}

test("one page of a long list is read and shown at a time, the newest entries first", async () => {
  const { pages, asked, last } = numbers(250);
  await pages.refresh();
  expect(last()).toEqual([1, 250, 151, true]);
  expect(asked, "no other page is read").toEqual([undefined]);
  await pages.toOlder();
  expect(last()).toEqual([2, 150, 51, true]);
  await pages.toOlder();
  expect(last()).toEqual([3, 50, 1, false]);
  await pages.toOlder();
  expect(last(), "there is no older one").toEqual([3, 50, 1, false]);
  await pages.toNewer();
  expect(last()).toEqual([2, 150, 51, true]);
  await pages.toNewer();
  await pages.toNewer();
  expect(last(), "there is no newer one").toEqual([1, 250, 151, true]);
  expect(asked).toEqual([undefined, 151, 51, 51, 151, undefined, undefined]);
});

test("a refresh reads the page that is shown, and new entries stand on the newest", async () => {
  const { pages, last, list } = numbers(150);
  await pages.refresh();
  await pages.toOlder();
  list.push(151, 152);
  await pages.refresh();
  expect(last()).toEqual([2, 50, 1, false]);
  pages.wantNewest();
  await pages.refresh();
  expect(last()).toEqual([1, 152, 53, true]);
});

test("what is looked for has pages of its own, until all are listed again", async () => {
  const { pages, drawn, last } = numbers(250);
  await pages.refresh();
  await pages.toOlder();
  await pages.find("even");
  expect(last()).toEqual([1, 250, 52, true]);
  await pages.toOlder();
  expect(last()).toEqual([2, 50, 2, false]);
  await pages.refresh();
  expect([...last(), drawn.at(-1)!.sought]).toEqual([2, 50, 2, false, "even"]);
  await pages.find("");
  expect(last()).toEqual([1, 250, 151, true]);
});

test("a refresh while another page is on its way reads that one, and an old reply is not drawn", async () => {
  const { pages, replies, drawn } = slow();
  const first = pages.refresh();
  replies[0]!.give({ data: [7], before: 7 });
  await first;
  const [turned, refreshed] = [pages.toOlder(), pages.refresh()];
  expect(replies.map(({ before }) => before)).toEqual([undefined, 7, 7]);
  replies[2]!.give({ data: [3], before: null });
  await refreshed;
  replies[1]!.give({ data: [4], before: null });
  await turned;
  expect(drawn.map(({ entries }) => entries)).toEqual([[7], [3]]);
});

test("a page that fails is told, and what was shown is read again", async () => {
  const { pages, replies, drawn } = slow();
  const first = pages.refresh();
  replies[0]!.give({ data: [7], before: 7 });
  await first;
  const turned = pages.toOlder();
  replies[1]!.fail(new Error("away"));
  await expect(turned).rejects.toThrow("away");
  const again = pages.refresh();
  replies[2]!.give({ data: [8], before: 8 });
  await again;
  expect(replies[2]!.before).toBeUndefined();
  expect(drawn.at(-1)).toEqual({ entries: [8], number: 1, hasOlder: true, sought: "" });
});
