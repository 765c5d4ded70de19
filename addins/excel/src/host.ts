// Excel as the pane sees it.

import { DOTTED } from "relserve-client/column";
import { RequestError, headers } from "relserve-client/wire";

import type { PaneHost } from "../../pane/host";
import type { Net, Server } from "../../shared/wire";
import * as selection from "./selection";
import * as settings from "./settings";
import * as sheet from "./sheet";

/** Where server and key are kept, and how the server is reached. */
export interface Parts {
  store: settings.Store;
  partition: string;
  net: Net;
}

/** The pane's host in Excel. */
export function excelHost({ store, partition, net }: Parts): PaneHost {
  const set = () => settings.load(store, partition);
  return {
    dialect: DOTTED,
    usual: "formula",
    readsFast: true,
    tools: [
      { label: "Keep as values", run: () => Excel.run((context) => selection.keepValues(context)) },
      { label: "Keep in the formula", run: () => Excel.run((context) => selection.keepInFormulas(context)) },
      { label: "Ask again", run: () => Excel.run((context) => selection.askAgain(context)) },
    ],
    settings: async () => ({ url: set()?.url ?? location.origin, hasKey: set() !== undefined, model: set()?.model }),
    save: async (url, key) => {
      const address = settings.checked(url);
      if ("problem" in address) throw new Error(address.problem);
      const model = set()?.url === address.url ? set()?.model : undefined;
      const server: Server = { url: address.url, key: key || (set()?.key ?? ""), model };
      if (!server.key) throw new Error("The key is missing.");
      await greet(net, server);
      settings.save(store, server, partition);
    },
    forget: async () => settings.clear(store, partition),
    chooseModel: async (model) => {
      const server = set();
      if (server) settings.save(store, { ...server, model }, partition);
    },
    get: (path) => get(net, set() ?? { url: location.origin, key: "" }, path),
    read: () => Excel.run((context) => sheet.read(context)),
    writeCell: (place, content) => Excel.run((context) => sheet.writeCell(context, place, content)),
    writeAnswers: (place, answers) => Excel.run((context) => sheet.writeAnswers(context, place, answers)),
  };
}

async function get(net: Net, { url, key }: Server, path: string): Promise<Response> {
  try {
    return await net.fetch(`${url}${path}`, { headers: headers(key) });
  } catch {
    throw new RequestError(`${url} cannot be reached. Is its setting server.cors_origins ${location.origin}?`, 0, undefined);
  }
}

/** Asks the server whether it knows the key; throws what is wrong with address or key. */
export async function greet(net: Net, server: Server): Promise<void> {
  const reply = await get(net, server, "/v1/models");
  if (reply.status === 401) throw new Error("The server does not know this key.");
  if (!reply.ok) throw new Error(`The server answered ${reply.status}.`);
}
