// Which language the page speaks: the one that was chosen in it, else the first of the browser's that it knows.

/** The languages, each by its own name. */
export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
export type Language = keyof typeof LANGUAGES;

const NAME = "relserve-language";

const isLanguage = (tag: string): tag is Language => Object.hasOwn(LANGUAGES, tag);

/** The first language of the list that there is: `de-AT` is German. English where there is none. */
export function firstKnown(tags: readonly string[]): Language {
  return tags.map((tag) => tag.toLowerCase().split("-")[0] ?? "").find(isLanguage) ?? "en";
}

/** The language of this browser; outside of one, as in tests, English. */
export function wantedLanguage(): Language {
  if (typeof document === "undefined") return "en";
  return firstKnown([localStorage.getItem(NAME) ?? "", ...navigator.languages]);
}

/** Keeps a choice in the browser. */
export function keepLanguage(language: Language): void {
  localStorage.setItem(NAME, language);
}
