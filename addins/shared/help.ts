// What the functions' arguments are, for the two sheets' own help, and which argument keeps an answer.

import { type AiFunction, CATALOGUE } from "relserve-client/catalogue";

const HELP: Record<string, string> = {
  prompt: "The question: a text or a cell. A range gives one answer for each of its cells.",
  text: "The text: a cell. A range gives one answer for each of its cells.",
  input: "What to continue with: a cell. A range gives one answer for each of its cells.",
  context: "Cells that the question is about. A range is read as one table.",
  labels: 'The labels: a range, or a text such as "good, bad".',
  what: "What to copy out of the text, such as \"the person's name\".",
  format: 'How long or in what form, such as "three words".',
  language: 'The language, such as "French".',
  tags: "The tags to choose from: a range, or a text with commas between them.",
  target: 'The format, such as "2026-01-31".',
  task: 'What to do with the text, such as "make it polite".',
  examples: "Two columns: inputs and what they become.",
  count: "How many items, 5 unless given.",
  criterion: 'By what to rate, such as "how urgent it is".',
  low: "The lowest rating, 1 unless given.",
  high: "The highest rating, 5 unless given.",
};

/** The last argument of every function, which only the add-ins have. */
export const KEPT = "kept";

/** What it is for. */
export const KEPT_HELP =
  'An answer to keep: where it is given it is shown and nothing is asked. "Keep in the formula" writes it.';

/** What an argument is, in one sentence. */
export function helpOf(argument: string): string {
  const help = HELP[argument];
  if (help === undefined) throw new Error(`the argument \`${argument}\` has no help text`);
  return help;
}

/** The functions, by the name that a formula has in the web page. */
export const FUNCTIONS: AiFunction[] = [...CATALOGUE.values()];
