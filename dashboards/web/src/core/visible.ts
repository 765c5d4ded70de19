// Names that others gave, as they are shown where something is decided by them.

/** Characters without a form of their own: controls, zero widths, what sets the direction of a text, selectors of forms, fillers. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;

/** What stands before and behind a joiner where it is seen: emoji; letters of India, the first without its vowel; of Arabic, that join. */
const EMOJI = [/\p{Extended_Pictographic}[\uFE0F\u{1F3FB}-\u{1F3FF}]*$/u, /^\p{Extended_Pictographic}/u] as const;
const INDIC = [/[\u094D\u09CD\u0A4D\u0ACD\u0B4D\u0BCD\u0C4D\u0CCD\u0D4D\u0DCA]$/u, /^(?=[\u0900-\u0DFF])\p{Alphabetic}/u] as const;
const ARABIC = [/(?=\p{Script=Arabic})\p{L}\p{M}*$/u, /^\p{M}*(?=\p{Script=Arabic})\p{L}/u] as const;

/** The same of selectors: what they choose the form of, and what has to follow. */
const PICTURE = [/(?=\p{Emoji})[^0-9#*\p{Emoji_Modifier}\p{Regional_Indicator}]$/u, /^/] as const;
const KEY = [/[0-9#*]$/, /^\u20E3/] as const;
const HAN = [/[\u3400-\u4DBF\u4E00-\u9FFF\uFA0E-\uFA29\u{20000}-\u{3FFFD}]$/u, /^/] as const;
const MONGOLIAN = [/(?=\p{Script=Mongolian})\p{L}$/u, /^/] as const;

/** Where a character that draws nothing is seen by what stands around it. */
function placesOf(hidden: string): readonly (readonly [RegExp, RegExp])[] {
  if (hidden === "\u200D") return [EMOJI, INDIC];
  if (hidden === "\u200C") return [ARABIC, INDIC];
  if (/^[\uFE0E\uFE0F]$/.test(hidden)) return [PICTURE, KEY];
  if (/^[\u{E0100}-\u{E01EF}]$/u.test(hidden)) return [HAN];
  return /^[\u180B-\u180D\u180F]$/.test(hidden) ? [MONGOLIAN] : [];
}

/** Whether a joiner (U+200D), what keeps letters apart (U+200C) or a selector is seen there. The server lets a name have it nowhere else. */
function isSeen(hidden: string, before: string, after: string): boolean {
  return placesOf(hidden).some(([last, next]) => last.test(before) && next.test(after));
}

/** A name whose hidden characters stand there by their code points: with one, two names look alike, or a text turns around. */
export function visible(name: string): string {
  return name.replace(HIDDEN, (hidden, at: number) =>
    isSeen(hidden, name.slice(0, at), name.slice(at + hidden.length))
      ? hidden
      : `[U+${hidden.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`,
  );
}
