// Serves `dist` and hands `/v1` on to a gateway, for the browser test only: later the gateway serves both.
//   node e2e/serve.mjs http://127.0.0.1:8080 [PORT]

import { readFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../dist/", import.meta.url));
const TYPES = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
};

/** What the gateway should send with the page: nothing from elsewhere, no inline script, no `eval`. */
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/**
 * Starts; `onCall` is told the path, the body and the end of each call that goes to the gateway, and may give a
 * promise that the call waits for: a slow network, for tests that must see cells wait.
 */
export function serve(gateway, port = 0, onCall = () => {}) {
  const server = createServer(async (incoming, outgoing) => {
    if (incoming.url.startsWith("/v1/")) return forward(gateway, incoming, outgoing, onCall);
    const path = normalize(new URL(incoming.url, "http://x").pathname).replace(/^\/$/, "/index.html");
    try {
      const body = await readFile(join(ROOT, path));
      outgoing.writeHead(200, {
        "Content-Type": TYPES[extname(path)] ?? "application/octet-stream", "Content-Security-Policy": POLICY,
      });
      outgoing.end(body);
    } catch {
      outgoing.writeHead(404).end("not found");
    }
  });
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}

async function forward(gateway, incoming, outgoing, onCall) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const call = { path: incoming.url, body: body.toString(), started: Date.now(), ended: undefined, isCut: false };
  outgoing.on("close", () => {
    call.ended = Date.now();
    call.isCut = !outgoing.writableFinished;
  });
  await onCall(call);
  if (outgoing.closed) return;
  const target = new URL(incoming.url, gateway);
  const passed = { ...incoming.headers, host: target.host };
  const upstream = request(target, { method: incoming.method, headers: passed }, (reply) => {
    outgoing.writeHead(reply.statusCode, reply.headers);
    reply.pipe(outgoing);
  });
  upstream.on("error", () => outgoing.headersSent || outgoing.writeHead(502).end());
  outgoing.on("close", () => upstream.destroy());
  upstream.end(body);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const server = await serve(process.argv[2] ?? "http://127.0.0.1:8080", Number(process.argv[3] ?? 8090));
  console.log(`http://127.0.0.1:${server.address().port}`);
}
