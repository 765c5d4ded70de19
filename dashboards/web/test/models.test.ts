// What the page makes of the server's models.

import { CATALOGUE } from "relserve-client/catalogue";
import { expect, test } from "vitest";

import { PICKING, type ServedModel, answering, isWithin, modelsOf, refuses } from "../src/core/models";

const SERVED: ServedModel[] = [{ id: "relserve-demo", picks_only: true }, { id: "large" }, { id: "l", root: "large" }];

test("the model that answers is the default one, or the one that is named, by its alias too", () => {
  expect(answering(SERVED, undefined)?.id).toBe("relserve-demo");
  expect(answering(SERVED, "l")?.root).toBe("large");
  expect(answering(SERVED, "gone")).toBeUndefined();
  expect(answering([], undefined)).toBeUndefined();
  expect(modelsOf(SERVED).map(({ id }) => id)).toEqual(["relserve-demo", "large"]);
});

test("the demo model refuses all functions but those that pick; others refuse none", () => {
  const names = [...CATALOGUE.values()].map(({ name }) => name);
  const [demo, large] = SERVED;
  expect(names.filter((name) => !refuses(demo, name))).toEqual(names.filter((name) => PICKING.includes(name)));
  expect(PICKING.every((name) => names.includes(name))).toBe(true);
  expect(names.filter((name) => refuses(large, name) || refuses(undefined, name))).toEqual([]);
});

test("tasks that want a larger model are behind the others where a small one answers, by whatever name", () => {
  const easy = { isBeyondDemo: false, wantsLarger: false };
  const writing = { isBeyondDemo: true, wantsLarger: false };
  const hard = { isBeyondDemo: false, wantsLarger: true };
  const able = (model: ServedModel | undefined) => [easy, writing, hard].map((task) => isWithin(model, task));
  expect(able({ id: "relserve-demo", picks_only: true })).toEqual([true, false, false]);
  expect(able({ id: "smollm2-135m-instruct" })).toEqual([true, true, false]);
  expect(able({ id: "SmolLM2-135M-Instruct-q4" })).toEqual([true, true, false]);
  expect(able({ id: "fast", root: "smollm2-135m-instruct" })).toEqual([true, true, false]);
  expect(able({ id: "qwen2.5-1.5b-instruct" })).toEqual([true, true, true]);
  expect(able(undefined), "nothing is known yet").toEqual([true, true, true]);
});
