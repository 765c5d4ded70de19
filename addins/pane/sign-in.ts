// Who is signed in where, and the model that is asked.

import { RequestError } from "relserve-client/wire";

import { at, onClick, wordsOf, write } from "./dom";
import type { PaneHost } from "./host";
import { models, tenant } from "./server";
import { problemLine } from "./words";

/** The part of the pane that signs in. */
export class SignIn {
  private readonly box = at("server", HTMLDetailsElement);
  private readonly url = at("url", HTMLInputElement);
  private readonly key = at("key", HTMLInputElement);
  private readonly model = at("model", HTMLSelectElement);
  private readonly formulas = at("formulas", HTMLInputElement);

  /** `changed` is told when another server or key is used. */
  constructor(private readonly host: PaneHost, private readonly changed: () => void) {
    at("form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      void this.attempt(() => this.save());
    });
    onClick("forget", () => void this.attempt(() => this.forget()));
    this.model.addEventListener("change", () => void this.attempt(() => host.chooseModel(this.model.value || undefined)));
    this.formulas.addEventListener("change", () => void this.attempt(async () => host.allowFormulas?.(this.formulas.checked)));
  }

  /** Shows what is set, and whether the server takes it. */
  async show(): Promise<void> {
    const { url, hasKey, model, formulas } = await this.host.settings();
    this.url.value = url;
    this.key.value = "";
    this.key.placeholder = hasKey ? "a key is set; leave this empty to keep it" : "rs-…";
    this.formulas.checked = formulas ?? false;
    at("formulas-label", HTMLLabelElement).hidden = formulas === undefined || !hasKey;
    at("model-label", HTMLLabelElement).hidden = !hasKey;
    if (!hasKey) return this.state("Not signed in", true);
    const where = url.replace(/^https?:\/\//, "");
    try {
      const [served, who] = await Promise.all([models((path) => this.host.get(path)), tenant((path) => this.host.get(path))]);
      const isServed = model === undefined || served.includes(model);
      if (!isServed) await this.host.chooseModel(undefined);
      const own = served.length === 1 ? `The server's own (${served[0]})` : "The server's own";
      this.model.replaceChildren(new Option(own, ""), ...served.map((id) => new Option(id, id)));
      this.model.value = (isServed && model) || "";
      this.state(`Signed in at ${where}${who === undefined ? "" : ` as ${who}`}`, false);
    } catch (error) {
      this.model.replaceChildren(new Option(model ?? "The server's own", model ?? ""));
      this.state(`Not signed in: ${error instanceof RequestError ? problemLine(error) : wordsOf(error)}`, true);
    }
  }

  private state(words: string, isOpen: boolean): void {
    write(at("signed", HTMLElement), words);
    this.box.open = isOpen;
  }

  private async save(): Promise<void> {
    this.say("Asking the server…");
    await this.host.save(this.url.value, this.key.value.trim());
    await this.show();
    this.say("");
    this.changed();
  }

  private async forget(): Promise<void> {
    await this.host.forget();
    await this.show();
    this.say("Server and key are forgotten.");
  }

  private async attempt(what: () => Promise<unknown>): Promise<void> {
    await what().catch((error: unknown) => this.say(wordsOf(error)));
  }

  private say(words: string): void {
    write(at("message", HTMLParagraphElement), words);
  }
}
