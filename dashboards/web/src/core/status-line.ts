// The words at the bottom: what was said last, in front of how a run goes. What tells of something that is over leaves by
// itself; what tells of something that lasts stays until it changes.

/** What was done is told for so long, in milliseconds. */
export const TOLD_MS = 8_000;

/** Calls back after some milliseconds; gives what undoes that. */
export type Later = (milliseconds: number, then: () => void) => () => void;

/** One of the two texts. */
interface Text {
  words: string;
  /** Keeps it from leaving. */
  stay: () => void;
}

/** The words. */
export class StatusLine {
  private readonly note: Text = { words: "", stay: () => undefined };
  private readonly run: Text = { words: "", stay: () => undefined };

  constructor(private readonly later: Later, private readonly show: (words: string) => void) {}

  /** Says something instead of all that was said. */
  say(words: string, lasts = false): void {
    this.put(this.run, "", true);
    this.put(this.note, words, lasts);
  }

  /** Tells how a run goes, behind what was said. */
  tell(words: string, lasts = true): void {
    this.put(this.run, words, lasts);
  }

  private put(text: Text, words: string, lasts: boolean): void {
    text.stay();
    text.words = words;
    text.stay = lasts || words === "" ? () => undefined : this.later(TOLD_MS, () => this.put(text, "", true));
    this.show([this.note.words, this.run.words].filter(Boolean).join(" "));
  }
}
