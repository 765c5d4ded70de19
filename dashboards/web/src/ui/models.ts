// The dialog of models: those that are served here, and those that could be, with what each takes.

import { bytesText } from "../core/bytes";
import { type KnownModel, type ServedModel, modelsOf } from "../core/models";
import { knownModels } from "../net/models";
import { t } from "../text";
import type { AnsweringModel } from "./answering";
import { element, onClick } from "./dom";
import { make, row, table } from "./make";

/** The dialog. */
export class ModelsDialog {
  private readonly dialog = element("models", HTMLDialogElement);
  private readonly problem = element("models-problem", HTMLParagraphElement);
  private readonly choice = element("models-choice", HTMLSelectElement);
  private readonly served = table(t.models.served, t.models.servedHeads);
  private readonly known = table(t.models.known, t.models.knownHeads);

  /** `chosen`: the open workbook asks the model of a name, or the default one. */
  constructor(private readonly answering: AnsweringModel, chosen: (name: string | undefined) => void) {
    element("models-served", HTMLDivElement).append(this.served.host);
    element("models-known", HTMLDivElement).append(this.known.host);
    onClick("models-open", () => void this.open());
    this.choice.addEventListener("change", () => chosen(this.choice.value === "" ? undefined : this.choice.value));
  }

  /** The models that the workbook may ask; nothing to choose where the server has one. */
  private choices(): void {
    const { models, chosen } = this.answering;
    const names = modelsOf(models).map(({ id }) => id);
    const others = chosen === undefined || names.includes(chosen) ? []
      : [new Option(models.some(({ id }) => id === chosen) ? chosen : t.models.gone(chosen), chosen)];
    this.choice.replaceChildren(
      new Option(t.models.usual(names[0] ?? ""), ""), ...others, ...names.map((name) => new Option(name, name)));
    this.choice.value = chosen ?? "";
    (this.choice.closest("label") as HTMLElement).hidden = names.length < 2 && others.length === 0;
  }

  private async open(): Promise<void> {
    this.served.body.replaceChildren(...modelsOf(this.answering.models).map(servedRow));
    this.choices();
    this.problem.textContent = "";
    this.dialog.showModal();
    try {
      this.known.body.replaceChildren(...(await knownModels()).map(knownRow));
    } catch (error) {
      this.problem.textContent = t.models.unknown(error instanceof Error ? error.message : String(error));
    }
  }
}

/** A name, and what the server says of it in its own language. */
const titled = (name: string, words: string) =>
  make("td", {}, make("code", {}, name), ...(words === "" ? [] : [make("br", {}), make("span", { class: "quiet", lang: "en" }, words)]));

function servedRow({ id, description = "", max_model_len: most }: ServedModel): HTMLTableRowElement {
  return row(titled(id, description), most === undefined ? "–" : t.models.tokens(most));
}

function knownRow({ name, description, licence, download_bytes, memory_bytes, fits, availability, command }: KnownModel): HTMLTableRowElement {
  const state = t.models.availability[availability];
  const made = row(
    titled(name, description), make("span", { lang: "en" }, licence), bytesText(download_bytes), bytesText(memory_bytes),
    fits === false ? t.models.tooLarge(state) : state, make("code", {}, command),
  );
  made.classList.toggle("too-large", fits === false);
  return made;
}
