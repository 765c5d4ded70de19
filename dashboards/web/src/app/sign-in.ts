// Links that sign the page in: `#sign-in=TOKEN`. The token is taken out of the address bar before anything is asked, so
// that no history, bookmark or screenshot keeps it, and exchanged for a key of this browser's own.

import { RequestError } from "relserve-client/wire";

import { signIn } from "../net/people";
import { storeKey } from "../store/key";
import { t } from "../text";

/** The address bar. */
export interface AddressBar {
  hash: string;
  /** Puts another address in its place, without a step in the history. */
  replace(hash: string): void;
}

const bar: AddressBar = {
  get hash() {
    return location.hash;
  },
  replace: (hash) => history.replaceState(null, "", hash || location.pathname),
};

/** Takes the value of `#name=VALUE` out of the address. */
export function takeFromAddress(name: string, address: AddressBar = bar): string | undefined {
  const start = `#${name}=`;
  if (!address.hash.startsWith(start)) return undefined;
  const value = address.hash.slice(start.length);
  address.replace("");
  return value;
}

/** Signs in where the address says so; gives why not, in words, where that failed. */
export async function signInByLink(address: AddressBar = bar, exchange = signIn, keep = storeKey): Promise<string> {
  const token = takeFromAddress("sign-in", address);
  if (token === undefined) return "";
  try {
    const { key } = await exchange(token);
    keep(key, true);
    return "";
  } catch (error) {
    return error instanceof RequestError ? t.login.linkRefused(error.message) : t.login.linkFailed;
  }
}
