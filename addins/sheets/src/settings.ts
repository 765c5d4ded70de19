// Where the server is and which key opens it. Both are the user's own properties: never the document's or the script's,
// which every editor reads, so that each editor asks with a key of their own and a copy of the sheet carries none.
//
// Google runs custom functions with the properties of the spreadsheet's owner, whoever edits it. So a formula gets the key
// only where its owner has said so; else an editor would ask with the owner's key, and spend the owner's tokens.

import type { Properties } from "./google";

/** The server, as the functions use it. */
export interface Settings {
  /** Without a slash at the end. */
  url: string;
  key: string;
  /** The model that answers; the server's own where none is chosen. */
  model?: string | undefined;
}

const URL_PROPERTY = "relserve.url";
const KEY_PROPERTY = "relserve.key";
const MODEL_PROPERTY = "relserve.model";
/** There where formulas may use the key. */
const FORMULAS_PROPERTY = "relserve.formulas";

/** A setting that cannot be used; its message is for the user. */
export class SettingsError extends Error {}

/** What is set; throws where something is missing. */
export function load(properties: Properties): Settings {
  const url = properties.getProperty(URL_PROPERTY);
  const key = properties.getProperty(KEY_PROPERTY);
  if (!url || !key) throw new SettingsError("no server is set: menu RelServe > Panel, and sign in with a key of your own");
  return { url, key, model: properties.getProperty(MODEL_PROPERTY) ?? undefined };
}

/** What a custom function may use; throws where its owner has not said that formulas may use their key. */
export function loadForFormulas(properties: Properties): Settings {
  if (!properties.getProperty(FORMULAS_PROPERTY)) {
    throw new SettingsError(
      "formulas have no key here: the owner of this spreadsheet can allow it in menu RelServe > Panel; columns of answers need no formula",
    );
  }
  return load(properties);
}

/**
 * What is set, and the address that this script came from where none is. The key itself never goes back to a page.
 */
export function shown(properties: Properties, usual: string): { url: string; hasKey: boolean; model: string | undefined; formulas: boolean } {
  return {
    url: properties.getProperty(URL_PROPERTY) ?? usual, hasKey: Boolean(properties.getProperty(KEY_PROPERTY)),
    model: properties.getProperty(MODEL_PROPERTY) ?? undefined, formulas: Boolean(properties.getProperty(FORMULAS_PROPERTY)),
  };
}

/** What somebody typed, checked; an empty key is the one that is set. */
export function checked(properties: Properties, url: string, key: string): Settings {
  const typed = key.trim();
  if (typed !== "" && !/^[\x21-\x7e]+$/.test(typed)) throw new SettingsError("the key has characters that no key has");
  const used = typed || properties.getProperty(KEY_PROPERTY);
  if (!used) throw new SettingsError("the key is missing");
  return { url: checkedUrl(url), key: used };
}

/** Keeps both. Another server has other models, and formulas were allowed to use the old key only. */
export function save(properties: Properties, { url, key }: Settings): void {
  if (url !== properties.getProperty(URL_PROPERTY)) properties.deleteProperty(MODEL_PROPERTY);
  if (key !== properties.getProperty(KEY_PROPERTY)) properties.deleteProperty(FORMULAS_PROPERTY);
  properties.setProperty(URL_PROPERTY, url);
  properties.setProperty(KEY_PROPERTY, key);
}

/** Sets the model, or none. */
export function chooseModel(properties: Properties, model: string): void {
  if (model) properties.setProperty(MODEL_PROPERTY, model);
  else properties.deleteProperty(MODEL_PROPERTY);
}

/** Says whether formulas may use the key. */
export function allowFormulas(properties: Properties, isAllowed: boolean): void {
  if (isAllowed) properties.setProperty(FORMULAS_PROPERTY, "yes");
  else properties.deleteProperty(FORMULAS_PROPERTY);
}

/** Forgets all. */
export function clear(properties: Properties): void {
  for (const name of [URL_PROPERTY, KEY_PROPERTY, MODEL_PROPERTY, FORMULAS_PROPERTY]) properties.deleteProperty(name);
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
