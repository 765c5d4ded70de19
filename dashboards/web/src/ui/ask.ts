// A question with a line to answer it: the browser's own would not fit the page, and phones hide theirs.

import { make } from "./make";

/** Asks for a text; `refuse` says why one will not do. Nothing where it is closed. */
export function ask(title: string, label: string, value: string, refuse: (text: string) => string = () => ""): Promise<string | undefined> {
  const input = make("input", { autocomplete: "off", spellcheck: "false" });
  const error = make("p", { class: "bad", role: "alert" });
  const cancel = make("button", { type: "button" }, "Cancel");
  const form = make("form", { method: "dialog" },
    make("h2", { id: "ask-title" }, title), make("label", {}, label, input), error,
    make("div", { class: "bar" }, make("span", { class: "grow" }), cancel, make("button", { type: "submit", class: "main" }, "OK")));
  const dialog = make("dialog", { "aria-labelledby": "ask-title" }, form);
  input.value = value;
  document.body.append(dialog);
  return new Promise((resolve) => {
    let answer: string | undefined;
    form.addEventListener("submit", (event) => {
      const text = input.value.trim();
      error.textContent = refuse(text);
      if (error.textContent !== "") event.preventDefault();
      else answer = text;
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    dialog.showModal();
    input.select();
  });
}
