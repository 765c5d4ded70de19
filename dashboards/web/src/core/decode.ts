// A file's bytes as text. A table that is not in UTF-8 comes from an older Excel, whose own encoding is tried then:
// decoding as UTF-8 all the same would put a mark for every accent, and the letters would be lost.

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
  if (bytes.includes(0)) throw new Error("it holds no text: save it as CSV in UTF-8");
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), note: "" };
  } catch {
    const text = new TextDecoder("windows-1252").decode(bytes);
    return { text, note: "It is not in UTF-8 and was read as Windows-1252: look at its accents." };
  }
}

function marked(encoding: string, bytes: Uint8Array): Decoded {
  try {
    return { text: new TextDecoder(encoding, { fatal: true }).decode(bytes), note: "" };
  } catch {
    const text = new TextDecoder(encoding).decode(bytes);
    return { text, note: `It says that it is in ${encoding.toUpperCase()}, but some of it is not: that stands as \uFFFD.` };
  }
}
