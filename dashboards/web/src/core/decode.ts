// A file's bytes as text. A table that is not in UTF-8 comes from an older Excel, whose own encoding is tried then:
// decoding as UTF-8 all the same would put a mark for every accent, and the letters would be lost.

import { t } from "../text";

/** A text, and what its reader should know of how it was read; empty where there is nothing to say. */
export interface Decoded {
  text: string;
  note: string;
}

/** The text of a file: by its byte order mark, else as UTF-8, else as Windows-1252. Throws where it is none. */
export function decode(bytes: Uint8Array): Decoded {
  const [first, second, third] = bytes;
  if (first === 0xff && second === 0xfe) return marked("utf-16le", bytes);
  if (first === 0xfe && second === 0xff) return marked("utf-16be", bytes);
  if (first === 0xef && second === 0xbb && third === 0xbf) return marked("utf-8", bytes);
  if (bytes.includes(0)) throw new Error(t.failure.noText);
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), note: "" };
  } catch {
    const text = new TextDecoder("windows-1252").decode(bytes);
    return { text, note: t.decoded.windows };
  }
}

function marked(encoding: string, bytes: Uint8Array): Decoded {
  try {
    return { text: new TextDecoder(encoding, { fatal: true }).decode(bytes), note: "" };
  } catch {
    const text = new TextDecoder(encoding).decode(bytes);
    return { text, note: t.decoded.broken(encoding.toUpperCase()) };
  }
}
