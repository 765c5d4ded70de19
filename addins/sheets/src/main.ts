// What the project's global functions call: the pure parts joined to Apps Script.

import { run as runIn } from "./ask";
import type { Place, SheetCells } from "../../pane/host";
import type { Cache, HttpReply, HttpRequest, Properties, ScriptHost } from "./google";
import * as menu from "./menu";
import * as panelServer from "./panel-server";
import * as panelSheet from "./panel-sheet";
import * as settings from "./settings";

interface Html {
  setTitle(title: string): Html;
}

interface Ui {
  createMenu(name: string): Menu;
  showSidebar(html: Html): void;
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
/** What the build puts in front: the server's address where it is known, and the page of the sidebar. */
declare const RELSERVE_URL: string;
declare const RELSERVE_PANEL: string;
declare const HtmlService: { createHtmlOutput(page: string): Html };
declare const SpreadsheetApp: menu.Sheets & {
  getUi(): Ui;
  getActive(): panelSheet.PanelBook & { getSpreadsheetTimeZone(): string };
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
    dateText,
  };
}

function dateText(date: Date): string {
  const text = Utilities.formatDate(date, SpreadsheetApp.getActive().getSpreadsheetTimeZone(), "yyyy-MM-dd HH:mm:ss");
  return text.replace(/ 00:00:00$/, "");
}

/** A custom function. */
export function run(name: string, args: unknown[], kept: unknown): unknown {
  return runIn(host(), name, args, kept);
}

/** The menu of an opened spreadsheet. */
export function open(): void {
  SpreadsheetApp.getUi()
    .createMenu("RelServe")
    .addItem("Panel", "relservePanel")
    .addSeparator()
    .addItem("Fetch late answers", "relserveFetchLate")
    .addItem("Ask the selection again", "relserveAskAgain")
    .addSeparator()
    .addItem("Keep the selection as values", "relserveKeepValues")
    .addItem("Keep the selection in its formulas", "relserveKeepInFormulas")
    .addToUi();
}

/** The sidebar: signing in, the model, columns of answers. */
export function panel(): void {
  SpreadsheetApp.getUi().showSidebar(HtmlService.createHtmlOutput(RELSERVE_PANEL).setTitle("RelServe"));
}

/** One of the entries that work on cells, with a message at its end. */
export function act(entry: "fetchLate" | "askAgain" | "keepValues" | "keepInFormulas"): void {
  SpreadsheetApp.getUi().alert(menu[entry](SpreadsheetApp));
}

/** The same for the sidebar, which has a place for the message. */
export function tool(entry: "fetchLate" | "askAgain" | "keepValues" | "keepInFormulas"): string {
  return menu[entry](SpreadsheetApp);
}

/** What is set for whoever looks at the sidebar. */
export function shownSettings(): ReturnType<typeof settings.shown> {
  return settings.shown(PropertiesService.getUserProperties(), RELSERVE_URL);
}

/** Tries address and key, and keeps them where the server takes them. */
export function signIn(url: string, key: string): void {
  panelServer.signIn((requests) => UrlFetchApp.fetchAll(requests), PropertiesService.getUserProperties(), url, key);
}

/** Forgets all that is set. */
export function forgetSettings(): void {
  settings.clear(PropertiesService.getUserProperties());
}

/** Chooses the model; an empty name is the server's own choice. */
export function chooseModel(model: string): void {
  settings.chooseModel(PropertiesService.getUserProperties(), model);
}

/** Says whether formulas may use the key. */
export function allowFormulas(isAllowed: boolean): void {
  settings.allowFormulas(PropertiesService.getUserProperties(), isAllowed);
}

/** Hands a request of the sidebar on to the server. */
export function relay(method: string, path: string, body: string): panelServer.Relayed {
  return panelServer.relay((requests) => UrlFetchApp.fetchAll(requests), PropertiesService.getUserProperties(), method, path, body);
}

/** The open sheet. */
export function readSheet(): SheetCells | null {
  return panelSheet.read(SpreadsheetApp.getActive(), dateText);
}

/** Writes one cell. */
export function writeCell(place: Place, content: string): void {
  panelSheet.writeCell(SpreadsheetApp.getActive(), place, content);
}

/** Writes answers downwards. */
export function writeAnswers(place: Place, answers: (string | number | null)[]): void {
  panelSheet.writeAnswers(SpreadsheetApp.getActive(), place, answers);
}
