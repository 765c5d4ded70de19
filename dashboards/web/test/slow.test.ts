// A server that is there and slow, and a page that is: what is said, and how often the screen is written.

import { RequestError } from "relserve-client/wire";
import { expect, test } from "vitest";

import { Toy, last } from "./toy";

test("a server that is there and has not answered for five seconds is busy, until the next answer", async () => {
  const toy = new Toy();
  toy.rate(["a", "b"]);
  await toy.pass(4_900);
  expect(toy.session.delay).toBeUndefined();
  const told = toy.progressed;
  // It speaks, as a stream that stays open does, and says nothing about the cells.
  last(toy).onHeard();
  await toy.pass(600);
  expect([toy.session.delay, toy.session.isReconnecting]).toEqual(["busy", false]);
  expect(toy.progressed).toBeGreaterThan(told);
  last(toy).onCell(0, { value: 4 });
  expect(toy.session.delay).toBeUndefined();
  toy.session.pause();
  await toy.pass(10_000);
  expect(toy.session.delay, "what its user keeps back is not late").toBeUndefined();
});

test("a server that takes no more is full until it answers; its cells are asked again", async () => {
  const toy = new Toy();
  toy.rate(["a"]);
  await toy.pass(100);
  last(toy).reject(new RequestError("too many requests", 429, 2_000));
  await toy.pass(100);
  expect(toy.session.delay).toBe("full");
  await toy.pass(3_000);
  expect([toy.runs.length, toy.session.delay]).toEqual([2, undefined]);
  last(toy).onCell(0, { value: 4 });
  last(toy).resolve({});
  await toy.pass(50);
  expect([toy.show(0, 1), toy.session.delay]).toEqual(["4", undefined]);
});

test("a server that is away is not called busy", async () => {
  const toy = new Toy();
  toy.rate(["a"]);
  toy.isThere = false;
  await toy.pass(10_000);
  expect([toy.session.isReconnecting, toy.session.delay]).toEqual([true, undefined]);
});

test("showing takes a fifth of the time at most: on a slow machine answers come in fewer steps", async () => {
  const toy = new Toy();
  toy.rate(["a", "b", "c"]);
  await toy.pass(100);
  // Each write of the screen takes so long.
  toy.paint = () => {
    toy.time += 50;
  };
  last(toy).onCell(0, { value: 1 });
  await toy.pass(100);
  expect(toy.show(0, 1)).toBe("1");
  last(toy).onCell(1, { value: 2 });
  await toy.pass(150);
  expect(toy.show(1, 1), "not yet").toBe("…");
  await toy.pass(60);
  expect(toy.show(1, 1)).toBe("2");
});
