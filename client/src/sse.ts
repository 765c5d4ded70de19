// Server-sent events out of text that arrives in pieces. `EventSource` can neither POST nor send a key.

/** One event. */
export interface ServerEvent {
  name: string;
  data: string;
}

/** Splits a stream of text into events. */
export class EventReader {
  private rest = "";

  /** Takes a piece, gives the events that it completed. Comments (`: waiting`) are none. */
  push(piece: string): ServerEvent[] {
    this.rest += piece;
    const events: ServerEvent[] = [];
    for (;;) {
      const end = /\r?\n\r?\n/.exec(this.rest);
      if (!end) return events;
      const event = read(this.rest.slice(0, end.index));
      this.rest = this.rest.slice(end.index + end[0].length);
      if (event) events.push(event);
    }
  }
}

function read(block: string): ServerEvent | undefined {
  let name = "message";
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const text = line.slice(colon + 1).replace(/^ /, "");
    if (line.startsWith("event:")) name = text;
    if (line.startsWith("data:")) data.push(text);
  }
  return data.length > 0 ? { name, data: data.join("\n") } : undefined;
}
