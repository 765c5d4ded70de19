// Server and key: in this browser's or Excel's storage for the add-in, never in the workbook.

import type { Server } from "../../shared/wire";

const NAME = "relserve";

/** The part of `Storage` that is used. */
export interface Store {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

/** What is set; `undefined` where nothing is. */
export function load(store: Store, partition = ""): Server | undefined {
  try {
    const { url, key, model } = JSON.parse(store.getItem(partition + NAME) ?? "null") as Partial<Server>;
    return typeof url === "string" && typeof key === "string" ? { url, key, ...(typeof model === "string" ? { model } : {}) } : undefined;
  } catch {
    return undefined;
  }
}

/** Keeps both. */
export function save(store: Store, server: Server, partition = ""): void {
  store.setItem(partition + NAME, JSON.stringify(server));
}

/** Forgets both. */
export function clear(store: Store, partition = ""): void {
  store.removeItem(partition + NAME);
}

/** An address to use, or what is wrong with it; a key is not sent in the clear but on one machine. */
export function checked(url: string): { url: string } | { problem: string } {
  const text = url.trim();
  let address: URL;
  try {
    address = new URL(text);
  } catch {
    return { problem: "The address must look like https://relserve.example.org." };
  }
  const isOwn = ["localhost", "127.0.0.1", "[::1]"].includes(address.hostname);
  if (address.protocol !== "https:" && !(address.protocol === "http:" && isOwn)) {
    return { problem: "The address must begin with https://, or the key would travel in the clear." };
  }
  if (address.username || address.search || address.hash) return { problem: "The address must have no user, ? or #." };
  return { url: `${address.origin}${address.pathname}`.replace(/\/+$/, "") };
}
