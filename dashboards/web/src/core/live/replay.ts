// Which time the lanes show: the present, or an earlier one that is stood at or played. No browser; time comes in as a number.

/** How many seconds of the past go by in a second of playing. */
export const SPEEDS = [1, 4, 16, 64] as const;

/** A place in the last minutes. Times are microseconds of the server. */
export class Replay {
  /** Absent while the present is shown. */
  private at: number | undefined;
  private playedAt: number | undefined;
  speed: number = SPEEDS[2];

  /** The time that is shown. */
  time(now: number): number {
    return Math.min(this.at ?? now, now);
  }

  get isLive(): boolean {
    return this.at === undefined;
  }

  get isPlaying(): boolean {
    return this.playedAt !== undefined;
  }

  /** Stands at a time. */
  seek(at: number): void {
    this.at = at;
    this.playedAt = undefined;
  }

  /** Plays from a time on; `clock` is the page's own, in milliseconds. */
  play(from: number, clock: number): void {
    this.at = from;
    this.playedAt = clock;
  }

  /** Stands still where it is. */
  pause(): void {
    this.playedAt = undefined;
  }

  /** Shows the present. */
  follow(): void {
    this.at = undefined;
    this.playedAt = undefined;
  }

  /** Goes on as far as the page's clock has; at the present it stands still. */
  tick(clock: number, now: number): void {
    if (this.playedAt === undefined || this.at === undefined) return;
    this.at += (clock - this.playedAt) * 1_000 * this.speed;
    this.playedAt = clock;
    if (this.at < now) return;
    this.at = now;
    this.playedAt = undefined;
  }
}
