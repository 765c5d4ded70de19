// The server's workbooks as one tenant's page asks for them, over a network of the test's own.

import { afterEach, expect, test, vi } from "vitest";

import { workbooksOf } from "../src/net/workbooks";

/** The server knows keys by the tenant in their name, and answers every route. */
const asked: string[] = [];
const server = async (path: string, { method = "GET", headers }: { method?: string; headers: Record<string, string> }) => {
  const key = headers["Authorization"] ?? "";
  asked.push(`${method} ${path} ${key.replace("Bearer ", "")}`);
  return Response.json(path === "v1/me" ? { tenant: "t", operator: false, workbooks: key.slice(-1) } : { data: [], version: 2 });
};

function browser(): { key: string } {
  const held = { key: "key-a" };
  vi.stubGlobal("sessionStorage", { getItem: () => held.key });
  vi.stubGlobal("fetch", server);
  asked.length = 0;
  return held;
}

afterEach(() => vi.unstubAllGlobals());

test("a key is asked once for its tenant; another one of the same tenant goes on", async () => {
  const held = browser();
  const workbooks = workbooksOf("a");
  await workbooks.list();
  await workbooks.list();
  held.key = "other-a";
  await workbooks.list();
  expect(asked).toEqual([
    "GET v1/me key-a", "GET v1/workbooks key-a", "GET v1/workbooks key-a", "GET v1/me other-a", "GET v1/workbooks other-a",
  ]);
});

test("a tab whose browser signed in to another tenant sends it nothing and takes nothing of it", async () => {
  const held = browser();
  const workbooks = workbooksOf("a");
  await workbooks.list();
  held.key = "key-b";
  await expect(workbooks.list()).rejects.toThrow("another tenant's workbooks");
  // What was under way, or is sent as the page goes, is still the first tenant's.
  await workbooks.save("s", "S", { rows: [], widths: [] }, 1);
  expect(asked.slice(2)).toEqual(["GET v1/me key-b", "POST v1/workbooks/s key-a"]);
});

test("a page that has not learned whose sheets it shows sends nothing", async () => {
  browser();
  await expect(workbooksOf(undefined).list()).rejects.toThrow("reload the page");
  await expect(workbooksOf("a").save("s", "S", { rows: [], widths: [] }, 0)).rejects.toThrow("nobody is signed in yet");
  expect(asked).toEqual(["GET v1/me key-a"]);
});
