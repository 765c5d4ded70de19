// The browser's database, whose requests become promises.

import { t } from "../text";

/** What a request gives. */
export function finished<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error(t.failure.store));
  });
}

/** Waits until the browser has what a transaction wrote; a disk that is full is only found out at its end. */
export function committed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error(t.failure.store));
  });
}
