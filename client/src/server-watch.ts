// Whether the server is there, while something waits for it: where nothing is heard it is asked, and asked again until it is
// back. Time and the question come from outside.

/** How often the server is looked after while something waits for it, and how long it may be silent before it is asked. */
const WATCH_MS = 250;
const SILENT_MS = 500;
/** How often it is asked whether it is back. */
const AWAY_MS = 1_000;
/** A request from before the server was away, of which nothing is heard for so long, is broken: it speaks every 15 s. */
const BROKEN_MS = 20_000;

/** What watching needs. */
export interface WatchHost {
  now(): number;
  /** Calls back after some milliseconds; gives what undoes that. */
  later(milliseconds: number, then: () => void): () => void;
  /** Whether the server answers at all. */
  probe(): Promise<boolean>;
  /** Whether nothing goes out, for want of a server. */
  isOffline(): boolean;
  /** The server is away: nothing more goes out. */
  away(): void;
  /** It is back. */
  back(): void;
  /** It was looked after. */
  looked?(): void;
}

/** A request that is watched. */
export class WatchedRequest {
  /** Whether the server was away since it was heard last. */
  isDoubtful = false;

  /** `drop` ends a request that is broken; `heard` is when anything came for it last. */
  constructor(readonly drop: () => void, public heard: number) {}
}

/** Looks after the server while requests are under way, and while it is away. */
export class ServerWatch {
  private readonly requests = new Set<WatchedRequest>();
  private stopWatch: (() => void) | undefined;
  private heard = 0;
  private isClosed = false;

  constructor(private readonly host: WatchHost) {}

  /** A request goes out; `drop` is called if it turns out to be broken. */
  begin(drop: () => void): WatchedRequest {
    this.heard = this.host.now();
    const request = new WatchedRequest(drop, this.heard);
    this.requests.add(request);
    this.watch();
    return request;
  }

  /** Anything came for a request. */
  hear(request: WatchedRequest): void {
    this.heard = request.heard = this.host.now();
    request.isDoubtful = false;
    if (this.host.isOffline()) this.back();
  }

  /** A request is over. */
  end(request: WatchedRequest): void {
    this.requests.delete(request);
    this.watch();
  }

  /** Looks no more. */
  close(): void {
    this.isClosed = true;
    this.stopWatch?.();
  }

  private watch(): void {
    if (this.isClosed || this.stopWatch || (this.requests.size === 0 && !this.host.isOffline())) return;
    this.stopWatch = this.host.later(this.host.isOffline() ? AWAY_MS : WATCH_MS, () => void this.look());
  }

  private async look(): Promise<void> {
    const isSilent = this.host.now() - this.heard >= SILENT_MS;
    if (isSilent || this.host.isOffline()) {
      const isThere = await this.host.probe();
      if (this.isClosed) return;
      if (isThere) this.heard = this.host.now();
      if (!isThere) this.away();
      else if (this.host.isOffline()) this.back();
    }
    this.dropBroken();
    this.host.looked?.();
    this.stopWatch = undefined;
    this.watch();
  }

  private away(): void {
    for (const request of this.requests) request.isDoubtful = true;
    if (!this.host.isOffline()) this.host.away();
  }

  private back(): void {
    for (const request of this.requests) request.heard = this.host.now();
    this.host.back();
  }

  private dropBroken(): void {
    for (const { drop, heard, isDoubtful } of this.requests) {
      if (isDoubtful && !this.host.isOffline() && this.host.now() - heard >= BROKEN_MS) drop();
    }
  }
}
