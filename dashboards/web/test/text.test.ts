// The languages: each has every message of the English one, with the same placeholders, and no text stands elsewhere.

import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { CATALOGUE } from "relserve-client/catalogue";
import { parseAst, transformWithEsbuild } from "vite";
import { describe, expect, test } from "vitest";

import de from "../src/text/de";
import { type Messages, PAGE, en } from "../src/text/en";
import { formatsOf } from "../src/text/formats";
import { LANGUAGES, type Language, firstKnown } from "../src/text/language";

const LOADED: Record<Language, Messages> = { en: en(formatsOf("en")), de: de(formatsOf("de")) };
const OTHERS = (Object.keys(LANGUAGES) as Language[]).filter((language) => language !== "en");

/** The messages by their paths. */
function flat(value: unknown, path = ""): [string, unknown][] {
  if (typeof value !== "object" || value === null) return [[path, value]];
  return Object.entries(value).flatMap(([key, inner]) => flat(inner, path === "" ? key : `${path}.${key}`));
}

/** `(n, row)` of a message that takes something. */
const parameters = (message: unknown) => (typeof message === "function" ? /^\(([^)]*)\)/.exec(message.toString())?.[1] : undefined);

/** A message with something for everything that it takes, and more than one of it. */
function filled(message: unknown): string {
  if (typeof message !== "function") return String(message);
  // Some take a list of names.
  const values = (parameters(message) ?? "").split(", ").map((name, i) => (name === "names" ? [`<${i}>`] : 11 + i));
  return String((message as (...values: unknown[]) => string)(...values));
}

const english = new Map(flat(LOADED.en));

describe.each(OTHERS)("%s", (language) => {
  const messages = new Map(flat(LOADED[language]));

  test("has the messages of English, and the rows of its lists", () => {
    expect([...messages.keys()].sort()).toEqual([...english.keys()].sort());
  });

  test("takes what English takes, in the same order, and says all of it", () => {
    for (const [path, message] of english) {
      expect(parameters(messages.get(path)), path).toBe(parameters(message));
      const numbers = (text: string) => text.match(/\d+|<\d>/g)?.sort() ?? [];
      if (typeof message === "function") expect(numbers(filled(messages.get(path))), path).toEqual(numbers(filled(message)));
    }
  });

  test("leaves nothing in English", () => {
    const same = [...english].filter(([path, message]) => /\p{L}{2}/u.test(filled(message)) && filled(messages.get(path)) === filled(message));
    expect(same.map(([path]) => path).sort()).toEqual(SAME[language]);
  });
});

/** Messages that are the same words in a language and in English. */
const SAME: Partial<Record<Language, string[]>> = {
  de: [
    "admin.caches", "admin.keyHeads.1", "admin.name", "batch.step", "formats.euro", "live.lanesHeads.0", "live.pause", "live.queueHeads.1",
    "live.stream", "ok", "page.Add-ins", "page.Filter", "page.Links", "page.Live", "page.Pause", "run.pause",
  ],
};

test("the AI functions are told as the catalogue has them", () => {
  expect(LOADED.en.functions).toEqual(Object.fromEntries([...CATALOGUE.values()].map(({ name, summary }) => [name, summary])));
});

test("a failure of the server is told as one, with what to do", () => {
  expect([LOADED.en.client.status(500), LOADED.de.client.status(413)]).toEqual([
    "something went wrong on the server (status 500): try again in a moment", "der Server hat das abgelehnt (Status 413)",
  ]);
});

test.each([
  [["de-AT", "en"], "de"], [["en-GB", "de"], "en"], [["fr", "de"], "de"], [["", "DE"], "de"], [["fr"], "en"], [[], "en"],
  [["toString"], "en"],
])("%j gives %s", (tags, language) => expect(firstKnown(tags)).toBe(language));

test("numbers and dates are written as the language writes them", () => {
  const [english, german] = [formatsOf("en"), formatsOf("de")];
  expect([english.count(1_234_567), german.count(1_234_567)]).toEqual(["1,234,567", "1.234.567"]);
  expect([english.percent(0.1234, 1), german.percent(0.1234, 1)]).toEqual(["12.3 %", "12,3 %"]);
  expect([english.decimal(0.5, 2), german.decimal(0.5, 2)]).toEqual(["0.50", "0,50"]);
  expect(german.moment(1_700_000_000)).toMatch(/^\d\d\.11\.2023, \d\d:\d\d$/);
});

test("index.html and its messages have the same texts", () => {
  const html = readFileSync(fileURLToPath(new URL("../index.html", import.meta.url)), "utf8")
    .replace(/<head>[^]*<\/head>|<code>.*?<\/code>/g, "<>");
  const attributes = [...html.matchAll(/ (?:title|aria-label|placeholder)="([^"]*)"/g)].map(([, text = ""]) => text);
  const texts = [...attributes, ...html.split(/<[^>]*>/)]
    .map((text) => text.trim().replace(/\s+/g, " ").replace(/&quot;/g, '"').replace(/&lt;/g, "<").replace(/&gt;/g, ">"))
    // A name, and how a key begins.
    .filter((text) => /\p{L}{2}/u.test(text) && !["RelServe", "rs-…"].includes(text));
  expect([...new Set(texts)].sort()).toEqual([...PAGE].sort());
});

describe("no text stands beside the messages", () => {
  const root = fileURLToPath(new URL("../src/", import.meta.url));
  const files = readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.startsWith("text/"))
    // Its literals are XML, and its tables are data.
    .filter((file) => !["files/xlsx.ts", "app/samples.ts"].includes(file));
  /** The texts of a program; what is put into one is a blank. */
  async function literals(source: string): Promise<string[]> {
    const { code } = await transformWithEsbuild(source, "source.ts");
    const found: string[] = [];
    JSON.stringify(parseAst(code), (_, node) => {
      if (node?.type === "ImportDeclaration" || node?.type === "ImportExpression") return undefined;
      if (node?.type === "Literal" && typeof node.value === "string") found.push(node.value);
      if (node?.type === "TemplateLiteral") found.push(node.quasis.map((part: { value: { cooked: string } }) => part.value.cooked).join(" "));
      return typeof node === "bigint" ? undefined : node;
    });
    return found;
  }
  const SELECTOR = /^((header|nav|input|select|textarea|button|td\.editor input|#\w+)(, | |$))+$/;
  /** What is said to programmers alone, a class, and formats as Excel writes them. */
  const ALLOWED = [
    "the catalogue is empty", "the page has no   ` `", "the grid could not be made", "the grid was asked to run a formula",
    "any text", "one letter", "quiet beyond", "quiet hint", "yyyy-mm-dd hh:mm", "d mmmm yyyy", "General",
    // A reason as the server tells it.
    "decodes with a chunk of prompts",
  ];
  /** Keys of keyboards, and events. */
  const KEYS = /^(Arrow\w+|Page\w+|Enter|Escape|Home|End|Tab|Delete|Control|Shift|Alt|Meta|Bearer|Authorization)$/;

  test.each(files)("%s", async (file) => {
    const source = readFileSync(root + file, "utf8");
    const said = (await literals(source)).filter((words) =>
      /\p{Ll}{2},? +\p{L}{2}/u.test(words) || (/^\p{Lu}\p{Ll}{2,}([^\p{L}\w-]|$)/u.test(words) && !KEYS.test(words.trim())));
    expect(said.filter((literal) => !ALLOWED.includes(literal) && !SELECTOR.test(literal))).toEqual([]);
    expect(source).not.toMatch(/toLocale\w*\("/);
  });

  test("and no message is left that nobody says", () => {
    const sources = files.concat("app/samples.ts", "files/xlsx.ts", "text/index.ts", "text/functions.ts").map((file) => readFileSync(root + file, "utf8")).join("\n");
    // Of lists by name, such as `live.reasons`, the list is asked for.
    const paths = flat(LOADED.en).map(([path]) => path.split(".")).filter(([first]) => first !== "page");
    const unsaid = paths.filter(([first, second]) => !new RegExp(`\\bt\\.${first}\\b(\\.${second}\\b|(?!\\.))`).test(sources));
    expect(unsaid.map((path) => path.join("."))).toEqual([]);
  });
});
