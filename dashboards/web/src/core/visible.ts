// Names that others gave, as they are shown where something is decided by them.

/** Characters without a form of their own: controls, zero widths, what sets the direction of a text, fillers. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|[\u034F\u17B4\u17B5\u115F\u1160\u3164\uFFA0]/gu;

/** A name whose hidden characters stand there by their code points: with one, two names look alike, or a text turns around. */
export function visible(name: string): string {
  return name.replace(HIDDEN, (hidden) => `[U+${hidden.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`);
}
