// Server and key through the built project's global functions, as its dialog calls them.

import { expect, test } from "vitest";

import type { HttpRequest } from "../src/google";
import { httpReply, load } from "./google";

/** A project whose server says who the key is. */
function project(caller: { status: number; body: unknown }) {
  const asked: string[] = [];
  const fetchAll = (requests: HttpRequest[]) =>
    requests.map(({ url }) => {
      asked.push(new URL(url).pathname);
      return httpReply(url.endsWith("/v1/me") ? caller : { status: 200, body: { data: [] } });
    });
  return { loaded: load({ UrlFetchApp: { fetchAll } }), asked };
}

test("an operator's key is refused before it is kept", () => {
  const { loaded, asked } = project({ status: 200, body: { operator: true, tenant: "acme" } });
  expect(() => loaded.relserveSave?.("https://relserve.example", "rs-1")).toThrow(/operator's key.*--tenant acme/);
  expect(asked).toEqual(["/v1/me"]);
  expect(loaded.properties.getProperty("relserve.key")).toBeNull();
  expect(loaded.relserveSettings?.()).toEqual({ url: "", hasKey: false });
});

test("a member's key is kept, and one of a server that does not know the question", () => {
  for (const caller of [{ status: 200, body: { operator: false, tenant: "acme" } }, { status: 404, body: {} }]) {
    const { loaded } = project(caller);
    expect(loaded.relserveSave?.("https://relserve.example/", "rs-1")).toBe("Connected. Nothing used yet.");
    expect(loaded.relserveSettings?.()).toEqual({ url: "https://relserve.example", hasKey: true });
  }
});
