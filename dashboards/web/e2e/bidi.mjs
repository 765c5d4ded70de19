// Debian's Firefox, driven by WebDriver BiDi (w3.org/TR/webdriver-bidi). playwright's own Firefox is a patched build that
// Debian has not, and with an unpatched one playwright wants commands that the ESR does not know yet; puppeteer brings
// seventy packages. The protocol is JSON over a WebSocket, of which the test needs ten commands.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { WebSocket } from "ws";

import { VIEWPORT, cellSelector, isElsewhere, until } from "./harness.mjs";

/** Keys that are no letters. */
export const KEYS = { Enter: "\uE006", Escape: "\uE00C", Delete: "\uE017", Control: "\uE009", Shift: "\uE008", ArrowDown: "\uE015" };
const LISTENS = /WebDriver BiDi listening on (ws:\S+)/;

/** Starts Firefox with one page; problems of that page are noted in `problems`. Gives the page and what ends the browser. */
export async function firefox(executable, problems, isExpected = () => false) {
  const profile = mkdtempSync(join(tmpdir(), "relserve-firefox-"));
  const browser = spawn(executable, ["--headless", "--no-remote", "--remote-debugging-port=0", "--profile", profile], { stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((then) => browser.once("exit", then));
  const url = await new Promise((then, fail) => {
    let said = "";
    browser.stderr.on("data", (piece) => {
      said += piece;
      const found = LISTENS.exec(said);
      if (found) then(`${found[1]}/session`);
    });
    browser.once("error", fail);
    browser.once("exit", () => fail(new Error(`Firefox ended: ${said}`)));
  });
  const session = await open(url);
  await session.send("session.new", { capabilities: {} });
  // The tab that Firefox begins with never has the focus, and its fields do not tell when they lose it.
  const { context } = await session.send("browsingContext.create", { type: "tab" });
  const page = new Page(session, context);
  await session.send("session.subscribe", { events: ["log.entryAdded", "network.beforeRequestSent", "browsingContext.userPromptOpened"] });
  session.on("log.entryAdded", ({ level, text, type, stackTrace }) => {
    if (["error", "warn"].includes(level) && !isExpected(text)) problems.push(`${type}: ${text} ${stackTrace?.callFrames[0]?.url ?? ""}`);
  });
  session.on("network.beforeRequestSent", ({ context, request }) => {
    if (context === page.context && page.address && isElsewhere(request.url, page.address)) problems.push(`another host: ${request.url}`);
  });
  session.on("browsingContext.userPromptOpened", ({ message }) => problems.push(`a dialog of the browser's own: ${message}`));
  await session.send("browsingContext.setViewport", { context: page.context, viewport: VIEWPORT });
  const close = async () => {
    await session.send("browser.close", {}).catch(() => browser.kill());
    await ended;
    rmSync(profile, { recursive: true, force: true });
  };
  return { page, close };
}

/** Commands and events of a connection. */
async function open(url) {
  const socket = new WebSocket(url);
  await new Promise((then, fail) => socket.once("open", then).once("error", fail));
  const [waiting, hearers] = [new Map(), new Map()];
  let last = 0;
  socket.on("message", (data) => {
    const { id, type, method, params, result, message, error } = JSON.parse(data);
    if (type === "event") return hearers.get(method)?.(params);
    const { then, fail } = waiting.get(id);
    waiting.delete(id);
    if (type === "success") then(result);
    else fail(new Error(`${error}: ${message}`));
  });
  return {
    send: (method, params) => new Promise((then, fail) => {
      last += 1;
      waiting.set(last, { then, fail });
      socket.send(JSON.stringify({ id: last, method, params }));
    }),
    on: (method, hear) => hearers.set(method, hear),
  };
}

/** A page, worked on by real keys and a real mouse. */
class Page {
  constructor(session, context) {
    Object.assign(this, { session, context, address: undefined });
  }

  send(method, params) {
    return this.session.send(method, { context: this.context, ...params });
  }

  /** Opens an address; requests to another host than its own are problems from now on. */
  async goto(url) {
    this.address = new URL(url).origin;
    await this.send("browsingContext.navigate", { url, wait: "complete" });
  }

  /** What a function gives in the page, by JSON. */
  async evaluate(what, ...args) {
    const { result, exceptionDetails } = await this.session.send("script.evaluate", {
      expression: `Promise.resolve((${what})(...${JSON.stringify(args)})).then((value) => JSON.stringify(value ?? null))`,
      target: { context: this.context }, awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.text);
    return JSON.parse(result.value);
  }

  text(selector) {
    return this.evaluate((at) => document.querySelector(at)?.textContent ?? "", selector);
  }

  isVisible(selector) {
    return this.evaluate((at) => document.querySelector(at)?.checkVisibility() === true, selector);
  }

  /** Whether what a selector finds is seen, stands still for two frames, and nothing lies over its middle. */
  isStill(selector) {
    return this.evaluate(async (at) => {
      const found = document.querySelector(at);
      if (found?.checkVisibility() !== true) return false;
      found.scrollIntoView({ block: "nearest", inline: "nearest" });
      const place = () => {
        const { left, top, width, height } = found.getBoundingClientRect();
        return [left + width / 2, top + height / 2];
      };
      const before = place();
      await new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)));
      const after = place();
      return after.every((one, i) => one === before[i]) && found.contains(document.elementFromPoint(...after));
    }, selector);
  }

  /** Clicks into the middle of what a selector finds, once it is there and stands still. */
  async click(selector, { button = 0, count = 1 } = {}) {
    await until(`${selector} is seen and stands still`, () => this.isStill(selector));
    // The browser looks for the place when it presses: what moves meanwhile is met all the same.
    const { result: { sharedId } } = await this.send("script.evaluate", {
      expression: `document.querySelector(${JSON.stringify(selector)})`, target: { context: this.context }, awaitPromise: false,
    });
    const press = [{ type: "pointerDown", button }, { type: "pointerUp", button }];
    const move = { type: "pointerMove", x: 0, y: 0, origin: { type: "element", element: { sharedId } } };
    const actions = [move, ...Array.from({ length: count }, () => press).flat()];
    await this.send("input.performActions", { actions: [{ type: "pointer", id: "mouse", actions }] });
  }

  /** Presses keys one after the other: letters of a text, or names of `KEYS`; `Control+c` holds the first one. */
  async press(...keys) {
    const actions = keys.flatMap((key) => {
      const names = key.length > 1 && key.includes("+") ? key.split("+") : [key];
      const values = names.map((name) => KEYS[name] ?? name);
      return [...values.map((value) => ({ type: "keyDown", value })), ...values.toReversed().map((value) => ({ type: "keyUp", value }))];
    });
    await this.send("input.performActions", { actions: [{ type: "key", id: "keys", actions }] });
  }

  type(text) {
    return this.press(...text);
  }

  cell(name) {
    return this.text(cellSelector(name));
  }

  async shot(path) {
    const { data } = await this.send("browsingContext.captureScreenshot", {});
    writeFileSync(path, Buffer.from(data, "base64"));
  }
}
