// Which version of the server each sheet of this browser stands on. A database of its own: the one of the sheets need
// not change its form, which tabs of an older page would block.

import type { SyncMark, SyncMarks } from "../app/workbook-sync";
import { committed, finished } from "./indexed";

const STORE = "marks";

/** Opens the marks of a name. */
export async function openMarks(name: string): Promise<SyncMarks> {
  const opening = indexedDB.open(name, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: "id" });
  const database = await finished(opening);
  const write = (change: (store: IDBObjectStore) => void) => {
    const transaction = database.transaction(STORE, "readwrite");
    change(transaction.objectStore(STORE));
    return committed(transaction);
  };
  return {
    all: () => finished(database.transaction(STORE).objectStore(STORE).getAll() as IDBRequest<SyncMark[]>),
    put: (mark) => write((store) => store.put(mark)),
    remove: (id) => write((store) => store.delete(id)),
  };
}
