// The language of the page: what `index.html` says in it, and the list to choose from.

import { language, t } from "../text";
import { LANGUAGES, type Language, keepLanguage } from "../text/language";
import { layOver } from "../text/lay";
import { element } from "./dom";

/** Says what `index.html` says in the language of the page, and lets its user choose another. */
export function speak(): void {
  document.documentElement.lang = language;
  if (language !== "en") layOver(document.body, t.page);
  const picker = element("language", HTMLSelectElement);
  picker.append(...Object.entries(LANGUAGES).map(([tag, name]) => {
    const option = new Option(name, tag, false, tag === language);
    option.lang = tag;
    return option;
  }));
  picker.addEventListener("change", () => {
    keepLanguage(picker.value as Language);
    // What is typed is kept as with any reload.
    location.reload();
  });
}
