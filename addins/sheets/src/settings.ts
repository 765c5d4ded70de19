// Where the server is and which key opens it. Both are the user's own properties: never in the sheet, so that a
// copy of the sheet carries no key.

import type { Properties } from "./google";

/** The server, as the functions use it. */
export interface Settings {
  /** Without a slash at the end. */
  url: string;
  key: string;
}

const URL_PROPERTY = "relserve.url";
const KEY_PROPERTY = "relserve.key";

/** A setting that cannot be used; its message is for the user. */
export class SettingsError extends Error {}

/** What is set; throws where something is missing. */
export function load(properties: Properties): Settings {
  const url = properties.getProperty(URL_PROPERTY);
  const key = properties.getProperty(KEY_PROPERTY);
  if (!url || !key) {
    throw new SettingsError("no server is set: menu RelServe > Server and key (the owner of this spreadsheet does it)");
  }
  return { url, key };
}

/**
 * The address that is set, else the one that this script came from, and whether a key is: what the dialog shows. The key
 * itself never goes back to a page.
 */
export function shown(properties: Properties, usual: string): { url: string; hasKey: boolean } {
  return { url: properties.getProperty(URL_PROPERTY) ?? usual, hasKey: Boolean(properties.getProperty(KEY_PROPERTY)) };
}

/** Checks and keeps both; an empty key leaves the old one. */
export function save(properties: Properties, url: string, key: string): void {
  const address = checkedUrl(url);
  const trimmed = key.trim();
  if (trimmed !== "" && !/^[\x21-\x7e]+$/.test(trimmed)) throw new SettingsError("the key has characters that no key has");
  if (trimmed === "" && !properties.getProperty(KEY_PROPERTY)) throw new SettingsError("the key is missing");
  properties.setProperty(URL_PROPERTY, address);
  if (trimmed !== "") properties.setProperty(KEY_PROPERTY, trimmed);
}

/** Forgets both. */
export function clear(properties: Properties): void {
  properties.deleteProperty(URL_PROPERTY);
  properties.deleteProperty(KEY_PROPERTY);
}

/** An address without white space and slashes at its end; a key is not sent in the clear but on one machine. */
export function checkedUrl(url: string): string {
  const found = /^(https?):\/\/(\[[0-9a-f:]+\]|[^\s/:?#@]+)(:\d+)?(\/[^\s?#]*)?$/i.exec(url.trim());
  if (!found) throw new SettingsError("the address must look like https://relserve.example.org");
  const isOwn = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/i.test(found[2] ?? "");
  if (found[1]?.toLowerCase() === "http" && !isOwn) {
    throw new SettingsError("the address must begin with https://, or the key would travel in the clear");
  }
  return url.trim().replace(/\/+$/, "");
}
