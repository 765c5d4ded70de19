// What operators read of keys and tenants, and what the page sends of limits.

import { replyError } from "relserve-client/wire";
import { describe, expect, test } from "vitest";

import { type KeyScope, rightsOf } from "../src/core/key-rights";
import { LIMITS, type LimitTexts, limitAt, limitTexts, limitsOf } from "../src/core/tenant-limits";
import { visible } from "../src/core/visible";
import { en } from "../src/text/en";
import { formatsOf } from "../src/text/formats";

const ALL: KeyScope = { operator: false, read_only: false, routes: null, tables: null };
const said = en(formatsOf("en")).admin.rights;
const rights = (scope: Partial<KeyScope>) => rightsOf({ ...ALL, ...scope }, said).join("; ");

describe("the rights of a key", () => {
  test.each<[Partial<KeyScope>, string]>([
    [{}, "All that its tenant may"],
    [{ operator: true }, "Operator: sees and changes all tenants"],
    [{ read_only: true }, "Only looks, changes nothing"],
    [{ routes: ["cells"], tables: ["x"] }, "Routes of cells"],
    [{ routes: ["cells", "sql"] }, "Routes of cells, sql"],
    [{ routes: ["sql"], tables: ["orders"] }, "Routes of sql; SQL reads the tables orders"],
    [{ tables: [] }, "SQL reads no table"],
    [{ routes: [], tables: [] }, "No group of routes"],
    [{ operator: true, read_only: true, routes: ["admin"] }, "Operator: sees all tenants, changes nothing; Routes of admin"],
  ])("%j is said in words", (scope, words) => expect(rights(scope)).toBe(words));

  test("of many names some are said, and how many more there are", () => {
    const tables = Array.from({ length: 1_000 }, (_, at) => `t${at}`);
    expect(rights({ tables })).toBe("SQL reads the tables t0, t1, t2, t3, t4, t5, t6, t7, and 992 more");
    expect(rights({ tables: tables.slice(0, 8) })).not.toMatch(/more/);
  });
});

test("a name shows the characters that nobody sees by their code points", () => {
  expect(visible("acme\u202Egro\u200B\u0007")).toBe("acme[U+202E]gro[U+200B][U+0007]");
  expect(visible("acme\u034F\u3164")).toBe("acme[U+034F][U+3164]");
  for (const name of ["Šmíd & söhne", "株式会社", "a\u0301", "🙂"]) expect(visible(name)).toBe(name);
  for (const name of ["می\u200Cخواهم", "क्\u200Dष", "👩🏽\u200D💻", "👨\u200D👩\u200D👧"]) expect(visible(name)).toBe(name);
  for (const name of ["ac\u200Dme", "👩\u200D", "\u200Cمی", "می\u200Dخ"]) {
    expect(visible(name)).toMatch(/\[U\+200[CD]\]/);
  }
});

/** The cases of `gateway/src/wire/variations.rs`. */
test("selectors of a form stand there behind what has forms, and by their code points elsewhere", () => {
  for (const name of [
    "❤\uFE0F", "♥\uFE0E", "⚡\uFE0F team", "🏳\uFE0F\u200D🌈", "🏴\u200D☠\uFE0F", "1\uFE0F\u20E3", "葛\u{E0100}城市", "﨑\u{E0101}",
    "ᠨ\u180Bᠠ",
  ]) {
    expect(visible(name)).toBe(name);
  }
  for (const name of [
    "ac\uFE0Fme", "ac\uFE00me", "acme\uFE0E", "acme1\uFE0F", "ac\u{E0100}me", "acme\u{E01EF}", "ac\u180Bme", "株\uFE0F式", "株\uFE00式",
    "テ\u{E0100}", "←\uFE0F", "👩🏽\uFE0F", "葛\u180B", "❤\u{E0100}", "\uFE0F❤", "❤\uFE0F\uFE0F", "葛\u{E0100}\u{E0101}", "ᠨ\u180B\u180B",
  ]) {
    expect(visible(name)).toMatch(/\[U\+(180B|FE0[0EF]|E01[0-9A-F]{2})\]/);
  }
  expect(visible("ac\uFE0Fme")).toBe("ac[U+FE0F]me");
  for (const blank of ["\u2800", "\u115F", "\u1160", "\uFFA0", "\u{1BCA0}", "\u{1D173}", "\u{1D17A}"]) {
    expect(visible(`acme${blank}`)).toMatch(/^acme\[U\+[0-9A-F]{4,5}\]$/);
  }
});

describe("a tenant's limits", () => {
  const none = Object.fromEntries(LIMITS.map((name) => [name, ""])) as LimitTexts;

  test("what is set is what was there where no field is touched", () => {
    const tenant = {
      day_tokens: { used: 12, max: 2_000_000 }, month_cost: { used: 0.5, max: 250.25 }, minute_requests: 600, models: ["a", "b"],
    };
    const texts = limitTexts(tenant, "en");
    expect(texts).toEqual({ ...none, day_tokens: "2000000", month_cost: "250.25", minute_requests: "600", models: "a, b" });
    const limits = { day_tokens: 2_000_000, month_cost: 250.25, minute_requests: 600, models: ["a", "b"] };
    for (const language of ["en", "de"]) expect(limitsOf(limitTexts(tenant, language), language)).toEqual({ limits, wrong: [] });
    const again = (one: Parameters<typeof limitTexts>[0]) => limitsOf(limitTexts(one, "en"), "en").limits;
    expect(again({ models: [] }), "no model is not every model").toEqual({ models: [] });
    expect(again({ day_tokens: { used: 0, max: 0 } }), "nothing is not without end").toEqual({ day_tokens: 0 });
  });

  test("an empty field sets no limit", () => {
    expect(limitsOf({ ...none, day_tokens: "  " }, "en")).toEqual({ limits: {}, wrong: [] });
  });

  test.each([
    ["en", { day_tokens: "1,000", month_tokens: "1,234,567", day_cost: "1,000.5", month_cost: "1.000", minute_requests: "1000" }],
    ["de", { day_tokens: "1.000", month_tokens: "1.234.567", day_cost: "1.000,5", month_cost: "1,000", minute_requests: "1000" }],
  ])("numbers are taken as the page writes them (%s)", (language, texts) => {
    expect(limitsOf({ ...none, ...texts }, language))
      .toEqual({ limits: { day_tokens: 1_000, month_tokens: 1_234_567, day_cost: 1_000.5, month_cost: 1, minute_requests: 1_000 }, wrong: [] });
  });

  test("what may be read in two ways, or is no number, is not sent", () => {
    const texts = { day_tokens: "1.000", month_tokens: "1e3", day_cost: "1,5", month_cost: "-1", minute_requests: "1234,567" };
    expect(limitsOf({ ...none, ...texts }, "en")).toEqual({ limits: {}, wrong: Object.keys(texts) });
    expect(limitsOf({ ...none, day_cost: "250.25" }, "de")).toEqual({ limits: {}, wrong: ["day_cost"] });
  });

  test("commas alone are not a list of models, which would lock the tenant out", () => {
    for (const models of [",", " , ,"]) expect(limitsOf({ ...none, models }, "en")).toEqual({ limits: {}, wrong: ["models"] });
    expect(limitsOf({ ...none, models: "a, ,b" }, "en").limits).toEqual({ models: ["a", "b"] });
  });

  test("a refusal stands beside the field that it names", async () => {
    const body = { error: { message: "invalid `limits.day_tokens`: must be an integer", param: "limits.day_tokens", code: null } };
    const error = await replyError(new Response(JSON.stringify(body), { status: 400 }));
    expect(limitAt(error.param)).toBe("day_tokens");
    expect(["limits.models[1]", "limits", "limits.day", "weight", undefined].map(limitAt)).toEqual(["models", undefined, undefined, undefined, undefined]);
  });
});
