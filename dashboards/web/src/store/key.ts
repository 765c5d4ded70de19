// The API key: for this tab, or for this browser if its user says so.

const NAME = "relserve-key";

/** The key, if there is one. */
export function storedKey(): string {
  return sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "";
}

/** Whether it outlives the tab. */
export function isRemembered(): boolean {
  return localStorage.getItem(NAME) !== null;
}

/** Stores a key for the tab, or for the browser. */
export function storeKey(key: string, remember: boolean): void {
  forgetKey();
  (remember ? localStorage : sessionStorage).setItem(NAME, key);
}

/** Drops it. */
export function forgetKey(): void {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
}
