// All that the page says to people, in the language that they want. English is in the page; another language is loaded
// before anything else of the page runs, so that a text may be read anywhere and at any time. A language's file imports
// types alone: the page, which it would have to import from, waits for it.

import { words } from "relserve-client/words";

import { type Messages, en } from "./en";
import { type Formats, formatsOf } from "./formats";
import { type Language, wantedLanguage } from "./language";

/** The messages of each language. */
const LOADERS: Record<Language, () => Promise<(formats: Formats) => Messages>> = {
  en: async () => en,
  de: async () => (await import("./de")).default,
};

export const language = wantedLanguage();
const formats = formatsOf(language);

/** The texts. */
export const t: Messages = (await LOADERS[language]())(formats);

// What the part says that the add-ins share.
Object.assign(words, t.client);

export const { count, decimal, percent, moment, time } = formats;
