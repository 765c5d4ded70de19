// A server of the test's own, in a thread: it holds answers back, goes away and comes back when the test says so, so that
// nothing here waits for a clock. It speaks as much of the API as the pane uses.

import { createServer } from "node:http";
import { parentPort, workerData } from "node:worker_threads";

const state = {
  /** Calls of a request that are answered; the rest waits for `release`. */
  held: Infinity,
  /** What is answered instead of cells. */
  refuses: undefined,
  budget: { used: 0, max: null, setting: null },
  /** Requests of cells: their bodies, and how many connections and tickets were called off. */
  asked: [],
  dropped: 0,
  cancelled: 0,
};
const waiting = new Set();
const tickets = new Map();

const answer = ({ args }) => `about ${args[0]}`;
const usage = { usage: { prompt_tokens: 10, completion_tokens: 2 } };
const json = (response, body, status = 200) => {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(JSON.stringify(body));
};

const cell = (call, index) => ({ index, value: answer(call), details: { source: "model", ...usage } });
const total = (calls) => ({ prompt_tokens: 10 * calls.length, completion_tokens: 2 * calls.length });

function cells(body, response) {
  state.asked.push(body);
  if (state.refuses) return json(response, { error: state.refuses.error }, state.refuses.status);
  const event = (name, data) => response.write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  const first = body.calls.slice(0, state.held);
  first.forEach((call, index) => event("cell", cell(call, index)));
  const finish = () => {
    body.calls.slice(first.length).forEach((call, i) => event("cell", cell(call, first.length + i)));
    event("done", { status: "completed", usage: total(body.calls) });
    response.end();
  };
  if (first.length === body.calls.length) return finish();
  if (body.deadline_ms < 10_000) {
    const ticket = `cl-${tickets.size + 1}`;
    tickets.set(ticket, { calls: body.calls, done: first.length, status: "running" });
    event("done", { status: "partial", ticket });
    return response.end();
  }
  waiting.add(finish);
  response.on("close", () => {
    if (waiting.delete(finish)) state.dropped += 1;
  });
}

function look(ticket, response) {
  const found = tickets.get(ticket);
  if (!found) return json(response, { error: { message: "no such ticket" } }, 404);
  const { calls, done, status } = found;
  const cells = calls.map((call, i) => (i < done ? { ...cell(call, i), index: undefined } : { pending: true }));
  json(response, { status, cells, usage: total(calls) });
}

function release() {
  state.held = Infinity;
  for (const finish of waiting) finish();
  waiting.clear();
  for (const ticket of tickets.values()) Object.assign(ticket, { done: ticket.calls.length, status: "completed" });
}

const routes = {
  "/healthz": {},
  "/v1/models": { data: [{ id: "large" }, { id: "small" }] },
  "/v1/me": { tenant: "acme", operator: false },
  "/v1/catalogue": { data: ["ask", "classify"].map((name) => ({ name, template: "x".repeat(40), max_tokens: 4 })) },
  "/v1/scheduler": {
    cost: { prefill_ns_per_token: 1e5, prefill_ns: 1e6, decode_ns_per_sequence: 1e5, decode_ns: 1e6 },
    limits: { step_tokens_max: 1_000, sequences_max: 100 },
  },
};

const server = createServer((request, response) => {
  for (const name of ["Origin", "Headers", "Methods"]) response.setHeader(`Access-Control-Allow-${name}`, name === "Methods" ? "GET, POST, DELETE" : name === "Origin" ? "*" : "authorization, content-type");
  const { pathname } = new URL(request.url, "http://toy");
  if (request.method === "OPTIONS") return response.end();
  if (pathname !== "/healthz" && request.headers.authorization !== `Bearer ${workerData.key}`) {
    return json(response, { error: { message: "unknown or revoked API key" } }, 401);
  }
  if (pathname === "/v1/usage") return json(response, { data: [], cells_day_tokens: state.budget });
  const ticket = /^\/v1\/cells\/(.+)/.exec(pathname)?.[1];
  if (ticket && request.method === "DELETE") {
    state.cancelled += 1;
    tickets.delete(ticket);
    return json(response, { cancelled: true });
  }
  if (ticket) return look(ticket, response);
  if (pathname !== "/v1/cells") return json(response, routes[pathname] ?? {}, routes[pathname] ? 200 : 404);
  let text = "";
  request.on("data", (piece) => { text += piece; });
  request.on("end", () => cells(JSON.parse(text), response));
});

let port = 0;
const commands = {
  start: () => new Promise((listening) => server.listen(port, "127.0.0.1", () => {
    ({ port } = server.address());
    listening(port);
  })),
  /** As a server that is killed. */
  kill: () => new Promise((closed) => {
    waiting.clear();
    server.close(() => closed());
    server.closeAllConnections();
  }),
  release,
  set: (values) => void Object.assign(state, values),
  state: () => ({ ...state, held: undefined }),
};

parentPort.on("message", async ({ id, name, value }) => parentPort.postMessage({ id, value: await commands[name](value) }));
