// Server and key through the built project's global functions, as its sidebar calls them, and whose key is used by whom.

import { expect, test } from "vitest";

import type { HttpRequest } from "../src/google";
import { OWNER, type Reply, httpReply, load, loadShared } from "./google";

const URL_OF_SERVER = "https://relserve.example";

/** A server that answers every call with "good", and writes down what it was asked. */
function server(me: Reply = { status: 200, body: { operator: false, tenant: "acme" } }) {
  const asked: HttpRequest[] = [];
  const reply = ({ url, payload }: HttpRequest): Reply => {
    if (url.endsWith("/v1/me")) return me;
    const { calls } = JSON.parse(payload ?? '{"calls":[]}') as { calls: unknown[] };
    return { status: 200, body: { status: "completed", cells: calls.map(() => ({ value: "good" })) } };
  };
  const fetchAll = (requests: HttpRequest[]) => {
    asked.push(...requests);
    return requests.map((request) => httpReply(reply(request)));
  };
  return { asked, UrlFetchApp: { fetchAll } };
}

test("an operator's key is refused before it is kept", () => {
  const services = server({ status: 200, body: { operator: true, tenant: "acme" } });
  const loaded = load(services);
  expect(() => loaded.relserveSignIn?.(URL_OF_SERVER, "rs-1")).toThrow(/operator's key.*--tenant acme/);
  expect(services.asked.map(({ url }) => url)).toEqual([`${URL_OF_SERVER}/v1/me`]);
  expect(loaded.properties.getProperty("relserve.key")).toBeNull();
  expect(loaded.relserveSettings?.()).toMatchObject({ url: "", hasKey: false });
});

test("a member's key is kept, and one of a server that does not know the question", () => {
  for (const me of [{ status: 200, body: { operator: false, tenant: "acme" } }, { status: 404, body: {} }]) {
    const loaded = load(server(me));
    loaded.relserveSignIn?.(`${URL_OF_SERVER}/`, "rs-1");
    expect(loaded.relserveSettings?.()).toEqual({ url: URL_OF_SERVER, hasKey: true, model: undefined, formulas: false });
  }
});

test("a key that the server does not know, or that no server was asked about, is not kept", () => {
  const away = { UrlFetchApp: { fetchAll: () => { throw new Error("Address unavailable"); } } };
  for (const [services, words] of [[server({ status: 401, body: {} }), "does not know this key"], [away, "cannot be reached"]] as const) {
    const loaded = load(services);
    expect(() => loaded.relserveSignIn?.(URL_OF_SERVER, "rs-1")).toThrow(words);
    expect(() => loaded.relserveSignIn?.(URL_OF_SERVER, "")).toThrow("the key is missing");
    expect(loaded.relserveSettings?.()).toMatchObject({ hasKey: false });
  }
});

test("the model that is chosen is asked by formulas and kept for its server", () => {
  const services = server();
  const loaded = load(services);
  loaded.relserveSignIn?.(URL_OF_SERVER, "rs-1");
  loaded.relserveChooseModel?.("small");
  loaded.relserveAllowFormulas?.(true);
  expect(loaded.AI_CLASSIFY?.("x", "good,bad")).toBe("good");
  expect(JSON.parse(services.asked.at(-1)?.payload ?? "")).toMatchObject({ model: "small" });
  loaded.relserveSignIn?.("https://other.example", "");
  expect(loaded.relserveSettings?.()).toMatchObject({ url: "https://other.example", model: undefined });
});

test("an editor's run never sees the owner's key", () => {
  const services = server();
  const project = loadShared(services);
  const [owner, editor] = [project.as(OWNER), project.as("editor")];
  owner.relserveSignIn?.(URL_OF_SERVER, "rs-owner");
  services.asked.length = 0;
  const keys = () => services.asked.map(({ headers }) => headers.Authorization);

  // The editor has no key yet: nothing is asked, from the panel or by a formula.
  expect(editor.relserveSettings?.()).toMatchObject({ hasKey: false });
  const ask = () => editor.relserveRelay?.("POST", "/v1/cells?details=true", '{"calls":[1]}');
  expect(ask).toThrow("a key of your own");
  expect(() => editor.AI_CLASSIFY?.("x", "good,bad")).toThrow("formulas have no key here");
  expect(keys()).toEqual([]);

  // With a key of their own, the panel asks with that one, and a formula, which Google runs as the owner, still with none.
  editor.relserveSignIn?.(URL_OF_SERVER, "rs-editor");
  editor.relserveAllowFormulas?.(true);
  expect(ask()).toMatchObject({ status: 200 });
  expect(() => editor.AI_CLASSIFY?.("x", "good,bad")).toThrow("formulas have no key here");
  expect(new Set(keys())).toEqual(new Set(["Bearer rs-editor"]));
  const told = [editor.relserveSettings?.(), owner.relserveSettings?.(), ask()];
  expect(JSON.stringify(told)).not.toContain("rs-owner");

  // The owner has not lost it, and may let formulas use it until it is another key.
  expect(project.properties(OWNER).getProperty("relserve.key")).toBe("rs-owner");
  owner.relserveAllowFormulas?.(true);
  expect(editor.AI_CLASSIFY?.("x", "good,bad")).toBe("good");
  expect(keys().at(-1)).toBe("Bearer rs-owner");
  owner.relserveSignIn?.(URL_OF_SERVER, "rs-owner-2");
  expect(() => editor.AI_CLASSIFY?.("y", "good,bad")).toThrow("formulas have no key here");
});

test("the panel asks nothing but what it is for", () => {
  const services = server();
  const loaded = load(services);
  loaded.relserveSignIn?.(URL_OF_SERVER, "rs-1");
  services.asked.length = 0;
  for (const [method, path] of [["GET", "/v1/keys"], ["POST", "/v1/tenants"], ["GET", "@evil.example/healthz"], ["DELETE", "/v1/workbooks/1"]]) {
    expect(() => loaded.relserveRelay?.(method, path, ""), path).toThrow("does not ask");
  }
  expect(services.asked).toEqual([]);
});
