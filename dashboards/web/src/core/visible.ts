// Names that others gave, as they are shown where something is decided by them.

/** Characters without a form of their own: controls, zero widths, what sets the direction of a text, fillers. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|[\u034F\u17B4\u17B5\u115F\u1160\u3164\uFFA0]/gu;

/** What stands before and behind a joiner where it is seen: emoji; letters of India, the first without its vowel; of Arabic, that join. */
const EMOJI = [/\p{Extended_Pictographic}[\uFE0F\u{1F3FB}-\u{1F3FF}]*$/u, /^\p{Extended_Pictographic}/u] as const;
const INDIC = [/[\u094D\u09CD\u0A4D\u0ACD\u0B4D\u0BCD\u0C4D\u0CCD\u0D4D\u0DCA]$/u, /^(?=[\u0900-\u0DFF])\p{Alphabetic}/u] as const;
const ARABIC = [/(?=\p{Script=Arabic})\p{L}\p{M}*$/u, /^\p{M}*(?=\p{Script=Arabic})\p{L}/u] as const;

/** Whether a joiner (U+200D), or what keeps letters apart (U+200C), is seen there. The server lets a name have it nowhere else. */
function joins(joiner: string, before: string, after: string): boolean {
  const places = joiner === "\u200D" ? [EMOJI, INDIC] : joiner === "\u200C" ? [ARABIC, INDIC] : [];
  return places.some(([last, next]) => last.test(before) && next.test(after));
}

/** A name whose hidden characters stand there by their code points: with one, two names look alike, or a text turns around. */
export function visible(name: string): string {
  return name.replace(HIDDEN, (hidden, at: number) =>
    joins(hidden, name.slice(0, at), name.slice(at + hidden.length))
      ? hidden
      : `[U+${hidden.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`,
  );
}
