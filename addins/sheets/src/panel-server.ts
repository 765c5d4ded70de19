// What the sidebar asks of the script: the server on behalf of whoever looks at the sidebar, with that user's own key, which
// never goes to the page.

import type { HttpReply, HttpRequest, Properties } from "./google";
import { refusedByGoogle } from "./fetch-answers";
import * as settings from "./settings";

/** A reply as the sidebar gets it; status 0 where no server answered. */
export interface Relayed {
  status: number;
  text: string;
  retryAfter?: string;
}

/** What the sidebar may ask. */
const ROUTES =
  /^(GET \/(healthz|v1\/(models|me|catalogue|scheduler|usage\?days=1|cells\/[\w-]+\?details=true))|POST \/v1\/cells\?details=true|DELETE \/v1\/cells\/[\w-]+)$/;

type FetchAll = (requests: HttpRequest[]) => HttpReply[];

/** Hands a request of the sidebar on. */
export function relay(fetchAll: FetchAll, properties: Properties, method: string, path: string, body: string): Relayed {
  if (!ROUTES.test(`${method} ${path}`)) throw new Error(`the panel does not ask ${method} ${path}`);
  const { url, key } = settings.load(properties);
  return fetchOne(fetchAll, { url, key }, method, path, body);
}

/** Checks what somebody typed with the server, and keeps it where the server takes it. */
export function signIn(fetchAll: FetchAll, properties: Properties, url: string, key: string): void {
  const typed = settings.checked(properties, url, key);
  const { status, text } = fetchOne(fetchAll, typed, "GET", "/v1/me", "");
  if (status === 0) throw new Error(`the server at ${typed.url} cannot be reached from Google's servers`);
  if (status === 401) throw new Error("the server does not know this key");
  // A server that does not know the question has keys all the same.
  if (status === 200) refuseOperator(JSON.parse(text) as Caller);
  else if (status !== 404) throw new Error(`the server answered ${status}`);
  settings.save(properties, typed);
}

interface Caller {
  operator: boolean;
  tenant: string;
}

/** Who edits the sheet may edit this script, and make it do anything as whoever opens the panel. */
function refuseOperator({ operator, tenant }: Caller): void {
  if (!operator) return;
  throw new Error(
    `This is an operator's key, and everybody who edits this sheet may edit the script that has it. Take a member's: relserve key create sheet --tenant ${tenant}`,
  );
}

function fetchOne(fetchAll: FetchAll, { url, key }: settings.Settings, method: string, path: string, body: string): Relayed {
  const request: HttpRequest = {
    url: `${url}${path}`, method: method.toLowerCase() as HttpRequest["method"],
    headers: { Authorization: `Bearer ${key}` }, muteHttpExceptions: true,
  };
  if (body !== "") Object.assign(request, { contentType: "application/json", payload: body });
  let reply: HttpReply | undefined;
  try {
    [reply] = fetchAll([request]);
  } catch (error) {
    const refused = refusedByGoogle(error);
    return refused === undefined ? { status: 0, text: "" } : { status: 403, text: JSON.stringify({ error: { message: refused } }) };
  }
  if (!reply) return { status: 0, text: "" };
  const retryAfter = Object.entries(reply.getHeaders()).find(([name]) => name.toLowerCase() === "retry-after")?.[1];
  const relayed = { status: reply.getResponseCode(), text: reply.getContentText() };
  return retryAfter === undefined ? relayed : { ...relayed, retryAfter: String(retryAfter) };
}
