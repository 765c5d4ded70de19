// The link that signs the page in, and what it leaves behind.

import { RequestError } from "relserve-client/wire";
import { expect, test } from "vitest";

import { type AddressBar, signInByLink, takeFromAddress } from "../src/app/sign-in";

class Bar implements AddressBar {
  readonly seen: string[] = [];

  constructor(public hash: string) {}

  replace(hash: string): void {
    this.hash = hash;
    this.seen.push(hash);
  }
}

test("the token leaves the address before it is sent, and the key is kept", async () => {
  const bar = new Bar("#sign-in=si-12");
  const told: string[] = [];
  const exchange = async (token: string) => {
    told.push(`${token} sent with ${JSON.stringify(bar.hash)} in the address`);
    return { key: "rs-9", tenant: "default", operator: true };
  };
  const problem = await signInByLink(bar, exchange, (key, remember) => told.push(`${key} ${remember}`));
  expect([problem, told]).toEqual(["", ['si-12 sent with "" in the address', "rs-9 true"]]);
});

test("a used link is told in the server's words and changes no key", async () => {
  const bar = new Bar("#sign-in=si-12");
  const exchange = () => Promise.reject(new RequestError("this link was used", 401, undefined));
  const keep = () => {
    throw new Error("no key came");
  };
  expect(await signInByLink(bar, exchange, keep)).toBe("Not signed in: this link was used.");
  expect(bar.hash).toBe("");
});

test("other addresses stay as they are", async () => {
  for (const hash of ["", "#live", "#sign-in", "#shared=ws-1"]) {
    const bar = new Bar(hash);
    expect(takeFromAddress("sign-in", bar)).toBeUndefined();
    expect([bar.hash, bar.seen]).toEqual([hash, []]);
  }
});
