// Who answers what is asked here: its name in the page's head, and what is told as long as it is the demo model.

import { type ServedModel, answering } from "../core/models";
import { element } from "./dom";

/** The model that answers. */
export class AnsweringModel {
  private readonly name = element("model", HTMLSpanElement);
  private served: readonly ServedModel[] = [];
  /** The one that the open workbook names. */
  private named: string | undefined;
  /** What stands instead of a name where the server tells none. */
  private problem = "";
  private listener: (model: ServedModel | undefined) => void = () => {};

  /** The server's models, as it told them last. */
  get models(): readonly ServedModel[] {
    return this.served;
  }

  /** The one that answers. */
  get current(): ServedModel | undefined {
    return answering(this.served, this.named);
  }

  /** The name that the open workbook has chosen. */
  get chosen(): string | undefined {
    return this.named;
  }

  /** A workbook is open that asks the model of a name, or the default one. */
  choose(name: string | undefined): void {
    this.named = name;
    this.show();
  }

  /** The server has told its models. */
  found(served: readonly ServedModel[]): void {
    [this.served, this.problem] = [served, ""];
    this.show();
  }

  /** The server has told none, for a reason or because nobody is signed in. */
  lost(problem: string): void {
    [this.served, this.problem] = [[], problem];
    this.show();
  }

  /** Tells which it is, now and when that changes. */
  tell(listener: (model: ServedModel | undefined) => void): void {
    this.listener = listener;
    this.show();
  }

  private show(): void {
    const { current } = this;
    const isGone = current === undefined && this.served.length > 0;
    this.name.textContent = current?.id ?? (isGone ? (this.named ?? "") : this.problem);
    this.name.classList.toggle("bad", isGone);
    document.body.classList.toggle("demo", current?.picks_only === true);
    this.listener(current);
  }
}
