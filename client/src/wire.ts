// Cell calls as the server speaks of them: key, errors, and the streamed reply of `POST /v1/cells`. Who asks, and when, is
// decided elsewhere.

import type { CellDetails } from "./details";
import { EventReader } from "./sse";
import { CellError } from "./value";
import { words } from "./words";

/** A request that failed as a whole. */
export class RequestError extends Error {
  constructor(
    message: string,
    /** The HTTP status; 0 where no reply came. */
    readonly status: number,
    /** Milliseconds that the server asks us to wait. */
    readonly retryAfter: number | undefined,
    /** The server's word for it. */
    readonly code?: string,
    /** The field of the request that is to blame, by its path. */
    readonly param?: string,
  ) {
    super(message);
  }

  /** Whether the same request may succeed later. */
  get again(): boolean {
    return this.status === 0 || (this.status === 429 && !this.isSpent) || this.status >= 502;
  }

  /** Whether the tenant's tokens of the day are spent: asking again, or for less, is of no use today. */
  get isSpent(): boolean {
    return this.code === "budget_spent";
  }

  /** Whether no server was reached: no reply came, or a proxy says that there is none behind it. */
  get isUnreachable(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 504;
  }

  /** Whether fewer calls in a request may succeed. */
  get isTooLarge(): boolean {
    return this.status === 413 || (this.status === 429 && !this.isSpent) || (this.status === 400 && /exceeds the limit/.test(this.message));
  }
}

/** An error as the server sends it. */
export interface WireError {
  message: string;
  type: string;
}

/** A cell as the server sends it. */
export interface WireCell {
  /** Its place among the calls. */
  index: number;
  value?: string | number | string[];
  error?: WireError;
  /** Set while it has neither. */
  pending?: boolean;
  /** How it came to that, where it was asked for. */
  details?: CellDetails;
}

/** The header that carries the key; none without one. */
export function headers(key: string): Record<string, string> {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** The server's words without the place of a call within its request, which says nothing to who reads the cell. */
export function withoutPlace(message: string): string {
  return message.replace(/^invalid `calls\[\d+\][^`]*`: /, "");
}

/** Calls that make no sense are the sheet's fault (#VALUE!), all else is an answer that is not there (#N/A). */
export function failure(error: WireError): CellError {
  return new CellError(error.type === "invalid_request_error" ? "#VALUE!" : "#N/A", withoutPlace(error.message));
}

/** The error of a reply that is none. */
export async function replyError(response: Response): Promise<RequestError> {
  let message = words.status(response.status);
  let code: string | undefined;
  let param: string | undefined;
  try {
    const body = (await response.json()) as { error?: { message?: string; code?: string | null; param?: string | null } };
    message = body.error?.message ?? message;
    code = body.error?.code ?? undefined;
    param = body.error?.param ?? undefined;
  } catch {
    // A proxy's page: its status says enough.
  }
  const seconds = Number(response.headers.get("Retry-After"));
  return new RequestError(message, response.status, seconds > 0 ? seconds * 1_000 : undefined, code, param);
}

/** Reads a streamed reply of `/v1/cells`: each cell as it comes; gives its last event. `onHeard` is told of every piece. */
export async function readCells<Done>(
  response: Response, signal: AbortSignal, onCell: (cell: WireCell) => void, onHeard: () => void = () => undefined,
): Promise<Done> {
  if (!response.ok || !response.body) throw await replyError(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  for (;;) {
    const { value, done } = await reader.read().catch((error: unknown) => {
      if (signal.aborted) throw error;
      throw new RequestError(words.broke, 0, undefined);
    });
    if (done) throw new RequestError(words.endedEarly, 0, undefined);
    onHeard();
    for (const { name, data } of events.push(value)) {
      if (name === "cell") onCell(JSON.parse(data) as WireCell);
      else if (name === "error") {
        throw new RequestError((JSON.parse(data) as { error: WireError }).error.message, 500, undefined);
      } else if (name === "done") return JSON.parse(data) as Done;
    }
  }
}
