// What is shipped: metadata, manifest and script agree with the catalogue and with one another.

import { existsSync, readFileSync } from "node:fs";

import { DOMParser, type Element } from "@xmldom/xmldom";
import { expect, test } from "vitest";

import { FUNCTIONS, KEPT, helpOf } from "../../shared/help";
import { FakeError, formula, load } from "./office";

const dist = (name: string) => new URL(`../dist/${name}`, import.meta.url);
const text = (name: string) => readFileSync(dist(name), "utf8");

interface Parameter {
  name: string;
  optional?: boolean;
  dimensionality?: string;
  description?: string;
}

interface Meta {
  functions: { id: string; name: string; description: string; parameters: Parameter[]; options?: { stream?: boolean } }[];
}

test("Microsoft's generator reads the functions as the catalogue has them", () => {
  const { functions } = JSON.parse(text("functions.json")) as Meta;
  expect(functions.map(({ id }) => id)).toEqual(FUNCTIONS.map(({ name }) => name.toUpperCase()));
  for (const [i, item] of FUNCTIONS.entries()) {
    const found = functions[i];
    expect(found?.name).toBe(item.name.toUpperCase());
    expect(found?.description).toBe(item.summary);
    expect(found?.options?.stream).toBe(true);
    const wanted = [...item.arguments.map(({ name, optional }) => ({ name, optional })), { name: KEPT, optional: true }];
    expect(found?.parameters.map(({ name, optional }) => ({ name, optional: optional ?? false }))).toEqual(wanted);
    expect(found?.parameters.every(({ dimensionality, description }) => dimensionality === "matrix" && description)).toBe(true);
  }
});

test("the script registers every function under the metadata's id", () => {
  expect([...load().keys()]).toEqual(FUNCTIONS.map(({ name }) => name.toUpperCase()));
});

test("every argument has a help text", () => {
  for (const item of FUNCTIONS) for (const { name } of item.arguments) expect(helpOf(name)).toMatch(/\.$/);
});

test("the manifest's references are there, its files are built, and nothing else is named but Office.js", () => {
  const manifest = new DOMParser().parseFromString(text("manifest.xml"), "text/xml");
  const all = [...manifest.getElementsByTagName("*")] as Element[];
  const ids = new Set(all.map((element) => (element.tagName.startsWith("bt:") ? element.getAttribute("id") : null)));
  const references = all.map((element) => element.getAttribute("resid")).filter((id) => id !== null && id !== "");
  expect(references.length).toBeGreaterThan(10);
  for (const id of references) expect(ids, `resid ${id}`).toContain(id);
  const urls = all.map((element) => element.getAttribute("DefaultValue") ?? "").filter((value) => value.startsWith("http"));
  for (const url of urls) expect(existsSync(dist(new URL(url).pathname.slice(1))), url).toBe(true);
  const runtime = manifest.getElementsByTagName("Runtime")[0];
  expect(runtime?.getAttribute("lifetime")).toBe("long");
  const page = manifest.getElementsByTagName("Page")[0]?.getElementsByTagName("SourceLocation")[0];
  expect(page?.getAttribute("resid")).toBe(runtime?.getAttribute("resid"));
  const hosts = [...text("taskpane.html").matchAll(/https?:\/\/[^/"]+/g)].map(([host]) => host);
  expect(hosts.filter((host) => !host.includes("relserve.example"))).toEqual(["https://appsforoffice.microsoft.com"]);
});

test("without a server set a formula says where to set it; a kept answer needs none", async () => {
  const functions = load(null);
  const classify = functions.get("CLASSIFY");
  if (!classify) throw new Error("CLASSIFY is not registered");
  const [[shown]] = (await formula(classify, [["x"]], [["a,b"]], null).settled) as [[FakeError]];
  expect(shown).toBeInstanceOf(FakeError);
  expect(shown).toMatchObject({ code: "#N/A", message: expect.stringContaining("RelServe pane") as unknown });
  expect(formula(classify, [["x"]], [["a,b"]], [["a"]]).seen).toEqual([[["a"]]]);
  expect(formula(classify, [[""]], [["a,b"]], null).seen).toEqual([[[""]]]);
});
