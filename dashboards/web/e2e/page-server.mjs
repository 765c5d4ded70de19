// The built page with a server that answers at once and at a fixed pace: what is measured with it is the page alone.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";

const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain" };
/** As the gateway sends it (`gateway/src/routes/page.rs`). */
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Serves `dist` from a free port; `answers` come for each request in every `everyMs`. Gives the server and what it sent, by path. */
export async function pageServer(dist, { answers = 100, everyMs = 40, policy = POLICY } = {}) {
  const sent = new Map();
  const server = createServer((incoming, outgoing) => {
    const { pathname } = new URL(incoming.url, "http://page");
    if (pathname === "/v1/cells") return void cells(incoming, outgoing, answers, everyMs);
    const body = pathname.startsWith("/v1/") || pathname === "/healthz" ? json(pathname) : file(dist, pathname);
    if (!body) return outgoing.writeHead(404).end();
    const packed = gzipSync(body, { level: 9 });
    sent.set(pathname, packed.length);
    const type = TYPES[extname(pathname === "/" ? "index.html" : pathname)] ?? "application/json";
    outgoing.writeHead(200, { "Content-Type": type, "Content-Encoding": "gzip", "Content-Security-Policy": policy });
    outgoing.end(packed);
  });
  await new Promise((then) => server.listen(0, "127.0.0.1", then));
  return { server, sent, address: `http://127.0.0.1:${server.address().port}` };
}

function json(pathname) {
  return Buffer.from(JSON.stringify(pathname === "/v1/models" ? { data: [{ id: "measured" }] } : {}));
}

function file(dist, pathname) {
  try {
    return readFileSync(join(dist, pathname === "/" ? "index.html" : pathname.slice(1)));
  } catch {
    return undefined;
  }
}

/** Answers calls as the server does, so many at a time. */
async function cells(incoming, outgoing, answers, everyMs) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const { calls } = JSON.parse(Buffer.concat(chunks).toString());
  outgoing.writeHead(200, { "Content-Type": "text/event-stream" });
  for (let first = 0; first < calls.length && !outgoing.destroyed; first += answers) {
    const events = calls.slice(first, first + answers).map((_, i) =>
      `event: cell\ndata: ${JSON.stringify({ index: first + i, value: i % 2 ? "good" : "bad" })}\n\n`);
    outgoing.write(events.join(""));
    await new Promise((then) => setTimeout(then, everyMs));
  }
  outgoing.end(`event: done\ndata: ${JSON.stringify({ usage: {} })}\n\n`);
}
