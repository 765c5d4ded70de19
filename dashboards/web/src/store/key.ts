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

/** Keeps a key. */
export function keepKey(key: string, remember: boolean): void {
  forgetKey();
  (remember ? localStorage : sessionStorage).setItem(NAME, key);
}

/** Drops it. */
export function forgetKey(): void {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
}
