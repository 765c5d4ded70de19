// The dialog of the open sheet on the server: links that show it to readers, and its older versions.

import { RequestError } from "relserve-client/wire";

import { sheetOf } from "../app/workbook-sync";
import * as server from "../net/workbooks";
import type { StoredSheet } from "../store/sheets";
import { count, moment, t } from "../text";
import { element, onClick } from "./dom";
import { make } from "./make";

/** What the dialog needs of the page. */
export interface ShareHost {
  /** The open sheet, where the server keeps sheets. */
  open(): StoredSheet | undefined;
  /** Has the server keep it as it is now; gives whether there is anything to keep, and throws where that failed. */
  keep(): Promise<boolean>;
  /** Goes back to an older version; throws where what is there now could not be kept. */
  restore(older: StoredSheet): Promise<void>;
}

const date = (seconds: number) => moment(seconds, "medium");
const kilobytes = (bytes: number) => `${count(Math.max(1, Math.round(bytes / 1_000)))} kB`;

/** A button of a list. */
function button(label: string, what: string, then: () => Promise<void>): HTMLButtonElement {
  const made = make("button", { type: "button", "aria-label": what }, label);
  made.addEventListener("click", () => void then());
  return made;
}

/** The dialog. */
export class ShareDialog {
  private readonly dialog = element("share-dialog", HTMLDialogElement);
  private readonly days = element("share-days", HTMLSelectElement);
  private readonly made = element("share-link", HTMLInputElement);
  private readonly links = element("share-links", HTMLUListElement);
  private readonly versions = element("share-versions", HTMLUListElement);
  private readonly makeButton = element("share-make", HTMLButtonElement);
  private readonly copyButton = element("share-copy", HTMLButtonElement);
  private readonly problem = element("share-problem", HTMLParagraphElement);

  constructor(private readonly host: ShareHost) {
    onClick("share", () => void this.open());
    onClick("share-make", () => void this.attempt((id) => this.makeLink(id)));
    onClick("share-copy", () => void this.copy());
  }

  private async open(): Promise<void> {
    this.showLink("");
    this.note(this.links, "");
    this.note(this.versions, "");
    this.problem.textContent = "";
    this.makeButton.disabled = true;
    this.dialog.showModal();
    if (!this.host.open()) {
      this.problem.textContent = t.share.signInFirst;
      return;
    }
    this.note(this.links, t.share.saving);
    await this.attempt((id) => this.refresh(id));
  }

  /** Says in a list why it is empty. */
  private note(list: HTMLUListElement, words: string): void {
    list.replaceChildren(...(words ? [make("li", { class: "quiet" }, words)] : []));
  }

  /** Copies the link, and says so. */
  private async copy(): Promise<void> {
    this.made.select();
    // Without HTTPS there is no clipboard, and some browsers refuse it; what is selected can be copied all the same.
    const selected = () => document.execCommand("copy");
    const isCopied = navigator.clipboard ? await navigator.clipboard.writeText(this.made.value).then(() => true, selected) : selected();
    if (isCopied) this.copyButton.textContent = t.share.copied;
  }

  /** Does something with the open sheet on the server, which has it as it is now, and says why not where it refuses. */
  private async attempt(act: (id: string) => Promise<void>): Promise<void> {
    this.problem.textContent = "";
    try {
      const isThere = await this.host.keep();
      this.makeButton.disabled = !isThere;
      // A save that came second goes on under another identifier.
      const sheet = this.host.open();
      if (isThere && sheet) return await act(sheet.id);
      this.note(this.links, t.share.empty);
    } catch (error) {
      if (this.makeButton.disabled) this.note(this.links, "");
      const isUnknown = error instanceof RequestError && error.status === 404;
      const words = error instanceof Error ? error.message : String(error);
      this.problem.textContent = isUnknown ? t.share.notThere : words;
    }
  }

  private async makeLink(id: string): Promise<void> {
    const { path = "" } = await server.share(id, Number(this.days.value));
    this.showLink(new URL(path, location.href).href);
    this.made.select();
    await this.refresh(id);
  }

  private showLink(link: string): void {
    this.made.value = link;
    this.copyButton.textContent = t.copy;
    element("share-made", HTMLDivElement).hidden = link === "";
  }

  private async refresh(id: string): Promise<void> {
    const [links, versions] = await Promise.all([server.shares(id), server.versions(id)]);
    const end = (link: number) => this.attempt(async () => {
      await server.endShare(id, link);
      await this.refresh(id);
    });
    this.links.replaceChildren(...links.map(({ id: number, created, expires }) =>
      make("li", {}, `${t.share.link(date(created), date(expires))} `, button(t.share.end, t.share.endOf(date(created)), () => end(number)))));
    if (links.length === 0) this.note(this.links, t.share.noLink);
    const [newest, ...older] = versions;
    const restore = (number: number) => this.attempt(async () => {
      const read = await server.version(id, number);
      const sheet = this.host.open();
      if (sheet) await this.host.restore(sheetOf(id, read, sheet, Date.now()));
      this.dialog.close();
    });
    this.versions.replaceChildren(
      ...(newest ? [make("li", {}, t.share.newest(date(newest.saved), kilobytes(newest.bytes)))] : []),
      ...older.map((one) => make("li", {}, `${t.share.version(date(one.saved), kilobytes(one.bytes))} `,
        button(t.share.restore, t.share.restoreOf(date(one.saved)), () => restore(one.version)))),
    );
    if (!newest) this.note(this.versions, t.share.noVersion);
  }
}
