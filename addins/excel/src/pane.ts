// The task pane: server and key, what the functions are doing, what they have used, and the tools for a selection.

import type { Engine } from "./engine";
import * as selection from "./selection";
import * as settings from "./settings";
import type { Net, Server } from "./wire";

/** What the pane works with. */
export interface Parts {
  engine: Engine;
  store: settings.Store;
  partition: string;
  net: Net;
}

const at = <T extends HTMLElement = HTMLElement>(id: string): T => {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
};

/** Fills the pane; gives what tells it that counts changed. */
export function startPane({ engine, store, partition, net }: Parts): () => void {
  const say = (text: string) => {
    at("message").textContent = text;
  };
  const set = settings.load(store, partition);
  at<HTMLInputElement>("url").value = set?.url ?? location.origin;
  const showKey = (isSet: boolean) => {
    at<HTMLInputElement>("key").value = "";
    at<HTMLInputElement>("key").placeholder = isSet ? "a key is set; leave this empty to keep it" : "rs-…";
  };
  showKey(set !== undefined);
  at<HTMLFormElement>("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const address = settings.checked(at<HTMLInputElement>("url").value);
    const key = at<HTMLInputElement>("key").value.trim() || settings.load(store, partition)?.key || "";
    if ("problem" in address) return say(address.problem);
    if (!key) return say("The key is missing.");
    say("Asking the server…");
    void greet(net, { url: address.url, key }).then(
      (words) => {
        settings.save(store, { url: address.url, key }, partition);
        showKey(true);
        say(words);
        engine.retry();
      },
      (error: unknown) => say(error instanceof Error ? error.message : String(error)),
    );
  });
  at("forget").addEventListener("click", () => {
    settings.clear(store, partition);
    showKey(false);
    say("Server and key are forgotten.");
  });
  at("retry").addEventListener("click", () => engine.retry());
  for (const tool of ["keepValues", "keepInFormulas", "askAgain"] as const) {
    at(tool).addEventListener("click", () => {
      Excel.run((context) => selection[tool](context)).then(say, (error: unknown) => say(String(error)));
    });
  }
  const show = () => {
    const { usage } = engine;
    const counts: Record<string, number> = {
      pending: engine.pending, answered: usage.answered, failed: usage.failed, cached: usage.fromCache,
      prompt: usage.promptTokens, output: usage.outputTokens, requests: usage.requests,
    };
    for (const [id, count] of Object.entries(counts)) at(id).textContent = count.toLocaleString();
  };
  show();
  return show;
}

/** Asks the server who it is; throws what is wrong with address or key. */
export async function greet(net: Net, { url, key }: Server): Promise<string> {
  let reply: Response;
  try {
    reply = await net.fetch(`${url}/v1/models`, { headers: { Authorization: `Bearer ${key}` } });
  } catch {
    throw new Error(`${url} cannot be reached. Is its setting server.cors_origins ${location.origin}?`);
  }
  if (reply.status === 401) throw new Error("The server does not know this key.");
  if (!reply.ok) throw new Error(`The server answered ${reply.status}.`);
  const { data } = (await reply.json()) as { data: { id: string }[] };
  return `Connected: ${data.map(({ id }) => id).join(", ")}.`;
}
