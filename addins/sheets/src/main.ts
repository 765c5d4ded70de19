// What the project's global functions call: the pure parts joined to Apps Script.

import { run as runIn } from "./ask";
import type { Cache, HttpReply, HttpRequest, Properties, ScriptHost } from "./google";
import * as menu from "./menu";
import * as settings from "./settings";

interface Html {
  setTitle(title: string): Html;
  setWidth(width: number): Html;
  setHeight(height: number): Html;
}

interface Ui {
  createMenu(name: string): Menu;
  showModalDialog(html: Html, title: string): void;
  alert(text: string): unknown;
}

interface Menu {
  addItem(name: string, run: string): Menu;
  addSeparator(): Menu;
  addToUi(): void;
}

declare const UrlFetchApp: { fetchAll(requests: HttpRequest[]): HttpReply[] };
declare const CacheService: { getUserCache(): Cache };
declare const PropertiesService: { getUserProperties(): Properties };
/** What the build puts in front: the server's address where it is known, and the page of the dialog. */
declare const RELSERVE_URL: string;
declare const RELSERVE_DIALOG: string;
declare const HtmlService: { createHtmlOutput(page: string): Html };
declare const SpreadsheetApp: menu.Sheets & {
  getUi(): Ui;
  getActive(): { getSpreadsheetTimeZone(): string };
};
declare const Utilities: {
  sleep(milliseconds: number): void;
  DigestAlgorithm: { SHA_256: unknown };
  Charset: { UTF_8: unknown };
  computeDigest(algorithm: unknown, text: string, charset: unknown): number[];
  base64EncodeWebSafe(bytes: number[]): string;
  formatDate(date: Date, zone: string, format: string): string;
};

function host(): ScriptHost {
  return {
    now: () => Date.now(),
    sleep: (milliseconds) => Utilities.sleep(milliseconds),
    fetchAll: (requests) => UrlFetchApp.fetchAll(requests),
    cache: CacheService.getUserCache(),
    properties: PropertiesService.getUserProperties(),
    digest: (text) =>
      Utilities.base64EncodeWebSafe(Utilities.computeDigest(Utilities.DigestAlgorithm.SHA_256, text, Utilities.Charset.UTF_8)),
    dateText: (date) => {
      const text = Utilities.formatDate(date, SpreadsheetApp.getActive().getSpreadsheetTimeZone(), "yyyy-MM-dd HH:mm:ss");
      return text.replace(/ 00:00:00$/, "");
    },
  };
}

/** A custom function. */
export function run(name: string, args: unknown[], kept: unknown): unknown {
  return runIn(host(), name, args, kept);
}

/** The menu of an opened spreadsheet. */
export function open(): void {
  SpreadsheetApp.getUi()
    .createMenu("RelServe")
    .addItem("Server and key…", "relserveDialog")
    .addSeparator()
    .addItem("Fetch late answers", "relserveFetchLate")
    .addItem("Ask the selection again", "relserveAskAgain")
    .addSeparator()
    .addItem("Keep the selection as values", "relserveKeepValues")
    .addItem("Keep the selection in its formulas", "relserveKeepInFormulas")
    .addToUi();
}

/** The dialog for server and key. */
export function dialog(): void {
  const html = HtmlService.createHtmlOutput(RELSERVE_DIALOG).setWidth(420).setHeight(330);
  SpreadsheetApp.getUi().showModalDialog(html, "RelServe: server and key");
}

/** One of the entries that work on cells, with a message at its end. */
export function act(entry: "fetchLate" | "askAgain" | "keepValues" | "keepInFormulas"): void {
  SpreadsheetApp.getUi().alert(menu[entry](SpreadsheetApp));
}

/** For the dialog: what is set. */
export function shownSettings(): { url: string; hasKey: boolean } {
  return settings.shown(PropertiesService.getUserProperties(), RELSERVE_URL);
}

/** For the dialog: checks, keeps, and asks the server who it is; gives its words. */
export function saveSettings(url: string, key: string): string {
  refuseOperator(settings.checkedUrl(url), key.trim());
  settings.save(PropertiesService.getUserProperties(), url, key);
  return usage();
}

/**
 * Refuses an operator's key: formulas of everybody who edits this sheet run with it, and who edits the sheet may edit this
 * script. A server that does not answer, or does not know the question, is met when the key is tried.
 */
function refuseOperator(url: string, key: string): void {
  if (key === "") return;
  const headers = { Authorization: `Bearer ${key}` };
  let reply: HttpReply | undefined;
  try {
    [reply] = UrlFetchApp.fetchAll([{ url: `${url}/v1/me`, method: "get", headers, muteHttpExceptions: true }]);
  } catch {
    return;
  }
  if (!reply || reply.getResponseCode() !== 200) return;
  const { operator, tenant } = JSON.parse(reply.getContentText()) as { operator: boolean; tenant: string };
  if (!operator) return;
  throw new Error(
    `This is an operator's key, and formulas of everybody who edits this sheet run with it. Take a member's: relserve key create sheet --tenant ${tenant}`,
  );
}

/** For the dialog: forgets server and key. */
export function forgetSettings(): void {
  settings.clear(PropertiesService.getUserProperties());
}

interface UsageRow {
  day: number;
  rows: number;
  prompt_tokens: number;
  completion_tokens: number;
}

/** For the dialog: what this key's tenant has used on the last day with any use; throws what is wrong with server or key. */
export function usage(): string {
  const { url, key } = settings.load(PropertiesService.getUserProperties());
  const headers = { Authorization: `Bearer ${key}` };
  let reply: HttpReply | undefined;
  try {
    [reply] = UrlFetchApp.fetchAll([{ url: `${url}/v1/usage`, method: "get", headers, muteHttpExceptions: true }]);
  } catch {
    throw new Error(`the server at ${url} cannot be reached from Google's servers`);
  }
  const status = reply?.getResponseCode();
  if (status === 401) throw new Error("the server does not know this key");
  if (!reply || status !== 200) throw new Error(`the server answered ${status}`);
  const { data } = JSON.parse(reply.getContentText()) as { data: UsageRow[] };
  const day = Math.max(...data.map((row) => row.day));
  const rows = data.filter((row) => row.day === day);
  const sum = (what: "rows" | "prompt_tokens" | "completion_tokens") => rows.reduce((all, row) => all + row[what], 0);
  if (rows.length === 0) return "Connected. Nothing used yet.";
  const date = new Date(day * 24 * 3_600_000).toISOString().slice(0, 10);
  return `Connected. ${date}: ${sum("rows")} cells and rows, ${sum("prompt_tokens")} prompt tokens, ${sum("completion_tokens")} answer tokens.`;
}
