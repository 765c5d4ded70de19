// What the sections of the operators' view are made of.

import { moment, t } from "../text";
import { make } from "./make";

/** A part of the view. */
export interface AdminSection {
  title: string;
  host: HTMLElement;
  /** Reads and draws it anew. */
  refresh(): Promise<void>;
}

/** An error as people read it. */
export function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The button of a form that makes something. */
export function mainButton(label: string): HTMLButtonElement {
  return make("button", { type: "submit", class: "main" }, label);
}

/** A form whose button does something with its fields; says why not where that is refused. */
export function form(submit: HTMLButtonElement, act: () => Promise<void>, ...fields: Node[]): HTMLFormElement {
  const problem = make("p", { class: "bad", role: "alert" });
  const made = make("form", { class: "bar" }, ...fields, submit, problem);
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    problem.textContent = "";
    void act().catch((error: unknown) => {
      problem.textContent = words(error);
    });
  });
  return made;
}

/** A field with its label. */
export function labelled(label: string, field: HTMLElement): HTMLLabelElement {
  return make("label", {}, `${label} `, field);
}

/** A button that does something once `mayAct` agrees, and says why not in its place where that is refused. */
export function action(
  label: string, what: string, act: () => Promise<unknown>, then: () => void, mayAct: () => Promise<boolean> = () => Promise.resolve(true),
): HTMLButtonElement {
  const made = make("button", { type: "button", "aria-label": what }, label);
  const begin = async () => {
    // Asked before it is disabled: whoever says no has the focus on it again.
    if (!(await mayAct())) return;
    made.disabled = true;
    await act().then(then, (error: unknown) => {
      made.disabled = false;
      made.textContent = words(error);
    });
  };
  made.addEventListener("click", () => void begin());
  return made;
}

/** Whether somebody is typing in a part of the page: it is not drawn anew under their hands. */
export function isInUse(host: HTMLElement): boolean {
  return host.contains(document.activeElement) && document.activeElement instanceof HTMLInputElement;
}

/** Unix seconds as people read them; a word for never. */
export function when(seconds: number | null): string {
  return seconds === null ? t.admin.never : moment(seconds);
}

/** Something that is shown once, in a field that it is copied from. */
export function shownOnce(words: string, secret: string): Node[] {
  const field = make("input", { readonly: "", id: "admin-secret", value: secret });
  const copy = make("button", { type: "button" }, t.copy);
  copy.addEventListener("click", () => {
    field.select();
    // Without HTTPS there is no clipboard; what is selected can be copied by hand.
    void navigator.clipboard?.writeText(secret);
  });
  return [make("label", { for: "admin-secret" }, words), make("span", { class: "once" }, field, copy)];
}
