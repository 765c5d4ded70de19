// A page that asks nothing, and a server that goes and comes.

import { expect, test } from "vitest";

import { AWAY_MS, BEAT_MS, DOUBT_MS, Heartbeat } from "../src/app/heartbeat";
import { Toy } from "./toy";

/** A heartbeat in a world whose time stands still, and what it told. */
function page(isThere = true) {
  const toy = new Toy();
  toy.isThere = isThere;
  const told: string[] = [];
  const host = {
    now: toy.now, later: toy.later, probe: () => toy.probe(), isHidden: () => toy.isHidden,
    away: (since: number) => told.push(`away since ${since}`), back: () => told.push("back"),
  };
  const heartbeat = new Heartbeat(host);
  heartbeat.look();
  return { toy, told, heartbeat };
}

test("an idle page says that its server is gone after two questions, since the first of them, and when it is back", async () => {
  const { toy, told, heartbeat } = page();
  await toy.pass(3 * BEAT_MS);
  expect(told).toEqual([]);
  toy.isThere = false;
  await toy.pass(BEAT_MS + DOUBT_MS);
  expect(told).toEqual([`away since ${4 * BEAT_MS}`]);
  expect(heartbeat.isAway).toBe(true);
  toy.isThere = true;
  await toy.pass(AWAY_MS[0] as number);
  expect(told.slice(1)).toEqual(["back"]);
  expect(heartbeat.isAway).toBe(false);
});

test("one question that is lost says nothing", async () => {
  const { toy, told } = page();
  await toy.pass(0);
  toy.isThere = false;
  await toy.pass(BEAT_MS);
  toy.isThere = true;
  await toy.pass(DOUBT_MS);
  toy.isThere = false;
  await toy.pass(BEAT_MS);
  expect(told, "nor does a second one, where one between them was answered").toEqual([]);
});

test("a server that stays away is asked less and less, and at once where there is a reason", async () => {
  const { toy, told, heartbeat } = page(false);
  await toy.pass(DOUBT_MS);
  expect(told).toHaveLength(1);
  for (const wait of [...AWAY_MS, AWAY_MS.at(-1) as number]) {
    const before = toy.probes;
    await toy.pass(wait - 1);
    expect(toy.probes, `${wait} ms`).toBe(before);
    await toy.pass(1);
    expect(toy.probes, `${wait} ms`).toBe(before + 1);
  }
  toy.isThere = true;
  heartbeat.look();
  await toy.pass(0);
  expect(told.slice(1)).toEqual(["back"]);
});

test("a page that nobody sees asks nothing, and knows nothing of the time between", async () => {
  const { toy, told, heartbeat } = page();
  await toy.pass(0);
  toy.isThere = false;
  await toy.pass(BEAT_MS);
  toy.isHidden = true;
  heartbeat.look();
  const before = toy.probes;
  await toy.pass(100 * BEAT_MS);
  expect(toy.probes).toBe(before);
  toy.isHidden = false;
  heartbeat.look();
  await toy.pass(0);
  expect(told, "one question since it is seen again").toEqual([]);
  await toy.pass(DOUBT_MS);
  expect(told).toEqual([`away since ${101 * BEAT_MS}`]);
});

test("what is heard of the server while a question waits for its turn counts", async () => {
  const { toy, told, heartbeat } = page();
  let lose: (isThere: boolean) => void = () => undefined;
  toy.probe = () => new Promise((resolve) => {
    lose = resolve;
  });
  await toy.pass(BEAT_MS);
  for (let question = 0; question < 3; question += 1) {
    heartbeat.heard();
    lose(false);
    await toy.pass(BEAT_MS);
  }
  expect(told).toEqual([]);
  lose(false);
  await toy.pass(DOUBT_MS);
  lose(false);
  await toy.pass(0);
  expect(told, "and silence does too").toHaveLength(1);
  heartbeat.heard();
  expect(told.slice(1)).toEqual(["back"]);
});
