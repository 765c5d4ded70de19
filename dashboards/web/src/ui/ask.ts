// Questions in a dialog of the page's own: the browser's would not fit it, and phones hide theirs.

import { t } from "../text";
import { make } from "./make";

/** Asks for a text; `refuse` says why one will not do. Nothing where it is closed. */
export function ask(title: string, label: string, value: string, refuse: (text: string) => string = () => ""): Promise<string | undefined> {
  const input = make("input", { autocomplete: "off", spellcheck: "false" });
  const error = make("p", { class: "bad", role: "alert" });
  input.value = value;
  const answer = answered({ title, action: t.ok, cancel: t.cancel }, [make("label", {}, label, input), error], () => {
    const text = input.value.trim();
    error.textContent = refuse(text);
    return error.textContent === "" ? text : undefined;
  });
  input.select();
  return answer;
}

/** Asks whether to delete something. */
export function confirmedDeletion(title: string): Promise<boolean> {
  return confirmedLoss(title, t.workbook.delete);
}

/** Asks whether to do what cannot be undone; `more` is said below the question. */
export async function confirmedLoss(title: string, action: string, more = ""): Promise<boolean> {
  const parts = more === "" ? [] : [make("p", {}, more)];
  return (await answered({ title, action, cancel: t.cancel, isBad: true }, parts, () => true)) ?? false;
}

/** Asks whether to go on. The button that does not is in front: Enter and Escape do nothing. */
export async function confirmed(title: string, action: string, cancel = t.cancel): Promise<boolean> {
  return (await answered({ title, action, cancel }, [], () => true)) ?? false;
}

/** Shows a dialog until it is closed, or until `read` finds an answer in it. */
function answered<T>(
  words: { title: string; action: string; cancel: string; isBad?: boolean }, parts: Node[], read: () => T | undefined,
): Promise<T | undefined> {
  const cancel = make("button", { type: "button" }, words.cancel);
  const go = make("button", { type: "submit", class: "main" }, words.action);
  go.classList.toggle("bad", words.isBad === true);
  const form = make("form", { method: "dialog" }, make("h2", { id: "ask-title" }, words.title), ...parts,
    make("div", { class: "bar" }, make("span", { class: "grow" }), cancel, go));
  const dialog = make("dialog", { "aria-labelledby": "ask-title" }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    let answer: T | undefined;
    form.addEventListener("submit", (event) => {
      answer = read();
      if (answer === undefined) event.preventDefault();
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    dialog.showModal();
  });
}
