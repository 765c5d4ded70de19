// What is said at the bottom, and for how long.

import { expect, test } from "vitest";

import { StatusLine, TOLD_MS } from "../src/core/status-line";

/** A line, and a clock that stands still until the test lets it go on. */
function toy() {
  let timers: (() => void)[] = [];
  const seen = { words: "" };
  const line = new StatusLine((milliseconds, then) => {
    expect(milliseconds).toBe(TOLD_MS);
    timers.push(then);
    return () => {
      timers = timers.filter((other) => other !== then);
    };
  }, (words) => {
    seen.words = words;
  });
  const pass = () => {
    for (const then of timers.splice(0)) then();
  };
  return { line, seen, pass };
}

test("what was done is told for a while", () => {
  const { line, seen, pass } = toy();
  line.say("Undone.");
  expect(seen.words).toBe("Undone.");
  pass();
  expect(seen.words).toBe("");
});

test("what lasts stays, and what was said before it leaves nothing behind", () => {
  const { line, seen, pass } = toy();
  line.say("Undone.");
  line.say("The sheet is not kept.", true);
  pass();
  expect(seen.words).toBe("The sheet is not kept.");
  line.say("");
  expect(seen.words).toBe("");
});

test("a run is told behind what was said, and stays when that leaves", () => {
  const { line, seen, pass } = toy();
  line.say("10 rows read.");
  line.tell("Paused.");
  expect(seen.words).toBe("10 rows read. Paused.");
  pass();
  expect(seen.words).toBe("Paused.");
  line.tell("10 cells in 1 s", false);
  pass();
  expect(seen.words).toBe("");
});
