// Answers that were seen, by call. Bounded by count and by characters, least recently used out first. What was kept or
// read since a run of calls began stays until the next one begins, whatever it weighs: a column of more text than the
// bound would else lose its first answers to its last ones and ask for them again, for ever.

import type { Answer } from "./calls";
import { DETAILS_CHARACTERS } from "./details";

/** What the cache holds at most. */
export interface Bounds {
  entries: number;
  characters: number;
}

/** Enough for a few large columns; about 20 MB, unless one run has more. */
export const BOUNDS: Bounds = { entries: 50_000, characters: 8_000_000 };

/** Seen answers. */
export class AnswerCache {
  // A Map keeps insertion order: what is read is put at the end again, so the first is the least used.
  private readonly answers = new Map<string, Answer>();
  /** Of those, the ones of the run under way. */
  private readonly held = new Set<string>();
  private characters = 0;
  private failures = 0;

  constructor(private readonly bounds: Bounds = BOUNDS) {}

  /** How many are held. */
  get size(): number {
    return this.answers.size;
  }

  /** Whether failures are held, which `forgetFailures` drops. */
  get hasFailures(): boolean {
    return this.failures > 0;
  }

  /** A run of calls begins: what earlier ones left may be dropped. */
  begin(): void {
    this.held.clear();
  }

  /** The answer of a call, if seen. */
  get(key: string): Answer | undefined {
    const answer = this.answers.get(key);
    // What is held stays whatever its place: a column that fills reads all of its answers with each that comes.
    if (answer !== undefined && !this.held.has(key)) {
      this.answers.delete(key);
      this.answers.set(key, answer);
      this.held.add(key);
    }
    return answer;
  }

  /** Keeps an answer. */
  put(key: string, answer: Answer): void {
    this.forget(key);
    this.answers.set(key, answer);
    this.held.add(key);
    this.characters += weight(key, answer);
    if (answer.error) this.failures += 1;
    for (const oldest of this.answers.keys()) {
      if (this.answers.size <= this.bounds.entries && this.characters <= this.bounds.characters) break;
      // What is held was touched later than anything that is not.
      if (this.held.has(oldest)) break;
      this.forget(oldest);
    }
  }

  /** Drops one answer. */
  forget(key: string): void {
    const answer = this.answers.get(key);
    if (answer === undefined) return;
    this.characters -= weight(key, answer);
    if (answer.error) this.failures -= 1;
    this.answers.delete(key);
    this.held.delete(key);
  }

  /** Drops the failures, so that they are asked again. */
  forgetFailures(): void {
    for (const [key, answer] of [...this.answers]) if (answer.error) this.forget(key);
  }
}

function weight(key: string, answer: Answer): number {
  const text = answer.error ? answer.error.note : JSON.stringify(answer.value);
  return key.length + text.length + (answer.details ? DETAILS_CHARACTERS : 0);
}
