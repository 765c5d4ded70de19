// Whether the server answers a page that asks nothing of it: over a server that is gone an idle page would go on saying
// "Saved". What looks after requests that are under way is `ServerWatch`; this one goes on when there are none.

/** How often the server is asked while all is well, and how soon again after one question that was lost. */
export const BEAT_MS = 2_500;
export const DOUBT_MS = 500;
/** Waits while it does not answer, longer each time. */
export const AWAY_MS: readonly number[] = [1_000, 2_000, 4_000, 8_000, 15_000];

/** What the heartbeat needs of the page. */
export interface HeartbeatHost {
  /** Unix milliseconds. */
  now(): number;
  /** Calls back after some milliseconds; gives what undoes that. */
  later(milliseconds: number, then: () => void): () => void;
  /** Whether the server answers at all. */
  probe(): Promise<boolean>;
  /** Whether nobody sees the page: it asks nothing then. */
  isHidden(): boolean;
  /** The server has not answered since then. */
  away(since: number): void;
  /** It answers again. */
  back(): void;
}

/** Asks the server whether it is there, as long as the page is seen. */
export class Heartbeat {
  private stopWait: (() => void) | undefined;
  private isAsking = false;
  /** When something else than the heartbeat's own questions heard of the server. */
  private heardAt: number | undefined;
  /** When the first of the questions went out that were all lost. */
  private lostAt: number | undefined;
  private isGone = false;
  /** Questions that were lost since the page said so. */
  private tries = 0;

  constructor(private readonly host: HeartbeatHost) {}

  /** Whether the server does not answer: two questions in a row were lost, for one alone may be lost on any network. */
  get isAway(): boolean {
    return this.isGone;
  }

  /** Asks now, where the page is seen, and goes on: it is shown again, or there is a reason to doubt or to hope. */
  look(): void {
    this.stopWait?.();
    this.stopWait = undefined;
    if (this.host.isHidden()) {
      // How it was meanwhile is not known when the page is shown again.
      if (!this.isGone) this.lostAt = undefined;
      return;
    }
    if (!this.isAsking) void this.ask();
  }

  /** Something else heard of the server. */
  heard(): void {
    this.heardAt = this.host.now();
    this.answers();
  }

  private async ask(): Promise<void> {
    this.isAsking = true;
    const asked = this.host.now();
    const isThere = await this.host.probe();
    this.isAsking = false;
    if (isThere) this.answers();
    else this.lost(asked);
    this.wait();
  }

  private answers(): void {
    this.lostAt = undefined;
    if (!this.isGone) return;
    this.isGone = false;
    this.host.back();
  }

  private lost(asked: number): void {
    // A question waits for its turn where all of a browser's connections are taken by answers that stream.
    if (this.heardAt !== undefined && this.heardAt >= asked) return;
    if (this.isGone) this.tries += 1;
    else if (this.lostAt === undefined) this.lostAt = asked;
    else {
      this.isGone = true;
      this.tries = 0;
      this.host.away(this.lostAt);
    }
  }

  private wait(): void {
    this.stopWait?.();
    this.stopWait = this.host.later(this.pause(), () => this.look());
  }

  private pause(): number {
    if (this.isGone) return AWAY_MS[Math.min(this.tries, AWAY_MS.length - 1)] ?? BEAT_MS;
    return this.lostAt === undefined ? BEAT_MS : DOUBT_MS;
  }
}
