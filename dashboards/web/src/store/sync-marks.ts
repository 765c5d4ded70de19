// Which version of the server each sheet of this browser stands on. A database of its own: the one of the sheets need
// not change its form, which tabs of an older page would block.

import type { SyncMark, SyncMarks } from "../app/workbook-sync";
import { finished } from "./indexed";

const STORE = "marks";

/** Opens the marks of a name. */
export async function openMarks(name: string): Promise<SyncMarks> {
  const opening = indexedDB.open(name, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: "id" });
  const database = await finished(opening);
  const store = (mode: IDBTransactionMode) => database.transaction(STORE, mode).objectStore(STORE);
  return {
    all: () => finished(store("readonly").getAll() as IDBRequest<SyncMark[]>),
    put: async (mark) => void (await finished(store("readwrite").put(mark))),
    remove: async (id) => void (await finished(store("readwrite").delete(id))),
  };
}
