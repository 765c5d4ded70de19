// The key dialog: asks the server whether a key is good before it is kept.

import { headers } from "relserve-client/wire";

import type { ServedModel } from "../core/models";
import { forgetKey, isRemembered, storeKey, storedKey } from "../store/key";
import { t } from "../text";
import type { AnsweringModel } from "./answering";
import { element, onClick } from "./dom";

/** What the server says of a key, or without one: its models, or why not. */
export async function checkKey(key: string): Promise<{ models: ServedModel[] } | { message: string; isRefused: boolean }> {
  try {
    const response = await fetch("v1/models", { headers: headers(key) });
    if (response.ok) {
      const body = (await response.json()) as { data?: ServedModel[] };
      return { models: body.data ?? [] };
    }
    const isRefused = response.status === 401;
    return { message: isRefused ? t.login.refused : t.login.status(response.status), isRefused };
  } catch {
    return { message: t.login.unreachable, isRefused: false };
  }
}

/** The dialog. */
export class Login {
  private readonly dialog = element("login", HTMLDialogElement);
  private readonly input = element("login-key", HTMLInputElement);
  private readonly remember = element("login-remember", HTMLInputElement);
  private readonly error = element("login-error", HTMLParagraphElement);
  private readonly title = element("login-title", HTMLHeadingElement);
  private readonly how = element("login-how", HTMLParagraphElement);
  private readonly who = element("login-who", HTMLParagraphElement);
  private readonly ok = element("login-ok", HTMLButtonElement);
  private readonly tenant = element("tenant", HTMLSpanElement);
  /** What the dialog says where nobody is signed in. */
  private readonly outside = { title: this.title.textContent, ok: this.ok.textContent };
  /** Whether the server takes what this browser has, as far as it was asked. */
  private isIn = false;

  constructor(private readonly answering: AnsweringModel, private readonly accepted: () => void) {
    onClick("key", () => this.open(""));
    onClick("login-cancel", () => this.dialog.close());
    onClick("login-forget", () => {
      forgetKey();
      this.input.value = this.tenant.textContent = "";
      this.isIn = false;
      this.showState();
      this.input.focus();
      this.answering.lost("");
      this.error.textContent = t.login.forgotten;
    });
    this.dialog.querySelector("form")?.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.use();
    });
  }

  /**
   * Tries the kept key, or none, which is enough where `auth.mode` is "none"; asks for one where it does not do, with why a
   * link did not sign in. Gives whether the key does.
   */
  async start(problem = ""): Promise<boolean> {
    const checked = await checkKey(storedKey());
    this.isIn = "models" in checked || (!checked.isRefused && storedKey() !== "");
    if ("models" in checked) this.answering.found(checked.models);
    else if (checked.isRefused) this.open(problem || (storedKey() ? t.login.refused : ""));
    else this.answering.lost(checked.message);
    return "models" in checked;
  }

  /** Asks for a key, since the server did not take the kept one, or wants one. */
  refused(): void {
    const worked = this.answering.current !== undefined;
    this.isIn = false;
    this.open(worked && storedKey() ? t.login.ended : storedKey() ? t.login.refused : "");
  }

  /** Opens the dialog with a message. */
  private open(message: string): void {
    this.error.textContent = message;
    this.showState();
    // A dialog that is open has somebody typing in it.
    if (this.dialog.open) return;
    this.input.value = storedKey();
    this.remember.checked = isRemembered();
    this.dialog.showModal();
    this.input.focus();
  }

  /** Says whether somebody is signed in, and who. */
  private showState(): void {
    const { isIn } = this;
    this.title.textContent = isIn ? t.login.title : this.outside.title;
    this.ok.textContent = isIn ? t.login.useKey : this.outside.ok;
    this.how.hidden = isIn;
    this.who.hidden = !isIn;
    const who = this.tenant.textContent;
    this.who.textContent = storedKey() === "" ? t.login.noKeyWanted : who === "" ? t.login.signedIn : t.login.signedInAs(who);
    // A key that is not there cannot be forgotten.
    element("login-forget", HTMLButtonElement).hidden = storedKey() === "";
  }

  private async use(): Promise<void> {
    const key = this.input.value.trim();
    const checked = await checkKey(key);
    if (!("models" in checked)) {
      this.error.textContent = checked.message;
      return;
    }
    storeKey(key, this.remember.checked);
    this.isIn = true;
    this.answering.found(checked.models);
    this.dialog.close();
    this.accepted();
  }
}
