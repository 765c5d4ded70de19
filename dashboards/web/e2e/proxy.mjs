// Stands between the browser and the server, for the browser test only: it sees every call, and can hold calls back.

import { createServer, request } from "node:http";

/**
 * Starts on a free port; `onCall` is told the path without its query, the headers, the body and the end of each call, may change its
 * headers, and may give a promise that the call waits for: a slow network, for tests that must see cells wait. With
 * `hold` in the call its answers stop on their way, with `change` each event goes on as that makes it, and with `refusal`
 * (status, headers, body) the server is not asked at all.
 */
export function proxy(server, onCall = () => {}) {
  const between = createServer((incoming, outgoing) => forward(server, incoming, outgoing, onCall));
  return new Promise((resolve) => between.listen(0, "127.0.0.1", () => resolve(between)));
}

async function forward(server, incoming, outgoing, onCall) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const call = { path: incoming.url.split("?")[0], headers: { ...incoming.headers }, body: body.toString(), isCut: false, isEnded: false };
  outgoing.on("close", () => {
    call.isEnded = true;
    call.isCut = !outgoing.writableFinished;
  });
  await onCall(call);
  if (outgoing.closed) return;
  if (call.refusal) {
    const { status, headers, body: words } = call.refusal;
    outgoing.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(words));
    return;
  }
  const target = new URL(incoming.url, server);
  const passed = { ...call.headers, host: target.host };
  const upstream = request(target, { method: incoming.method, headers: passed }, (reply) => {
    outgoing.writeHead(reply.statusCode, reply.headers);
    // The page may go away meanwhile, and takes the server's end with it.
    if (call.hold || call.change) passOn(reply, outgoing, call).catch(() => outgoing.destroy());
    else reply.pipe(outgoing);
  });
  upstream.on("error", () => outgoing.headersSent || outgoing.writeHead(502).end());
  outgoing.on("close", () => upstream.destroy());
  upstream.end(body);
}

/** Passes a stream of answers on, event by event: as far as its `answers`-th cell, and the rest once `released`. */
async function passOn(reply, outgoing, { hold: { answers, released } = { answers: Infinity }, change = (event) => event }) {
  let passed = 0;
  let rest = "";
  for await (const piece of reply.setEncoding("utf8")) {
    const events = (rest + piece).split(/(?<=\n\n)/);
    rest = events.at(-1).endsWith("\n\n") ? "" : events.pop();
    for (const event of events) {
      if (event.startsWith("event: cell")) passed += 1;
      if (passed > answers) await released;
      if (outgoing.destroyed) return;
      outgoing.write(change(event));
    }
  }
  outgoing.end(rest);
}
