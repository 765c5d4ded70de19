// The cell functions as the server has them (`ir/catalogue.toml`; a test compares the two), with the one
// thing that only a sheet knows: which argument runs over the rows of a range.

/** What an argument may be. */
export type ArgumentKind = "text" | "list" | "pairs" | "number";

/** An argument. */
export interface Argument {
  name: string;
  kind: ArgumentKind;
  optional: boolean;
}

/** A function. */
export interface AiFunction {
  name: string;
  summary: string;
  arguments: Argument[];
  /** The argument over whose range the function runs, one call a cell. */
  over: number;
}

function define(name: string, over: string, summary: string, ...args: [string, ArgumentKind][]): AiFunction {
  const list = args.map(([text, kind]) => ({ name: text.replace("?", ""), kind, optional: text.endsWith("?") }));
  return { name, summary, arguments: list, over: list.findIndex((argument) => argument.name === over) };
}

const FUNCTIONS: AiFunction[] = [
  // `ask` runs over its prompt; a range of context is one table, as everywhere where a prompt takes ranges.
  define("ask", "prompt", "Answers a question, with cells as context.", ["prompt", "text"], ["context?", "text"]),
  define("classify", "text", "Gives the one label that fits the text.", ["text", "text"], ["labels", "list"]),
  define("extract", "text", "Copies out of the text what is asked for.", ["text", "text"], ["what", "text"]),
  define("summarize", "text", "Shortens the text.", ["text", "text"], ["format?", "text"]),
  define("translate", "text", "Translates the text.", ["text", "text"], ["language", "text"]),
  define("tag", "text", "Gives all tags that fit the text, separated by commas.", ["text", "text"], ["tags?", "list"]),
  define("format", "text", "Rewrites the value in a target format.", ["text", "text"], ["target", "text"]),
  define("edit", "text", "Applies an instruction to the text.", ["text", "text"], ["task", "text"]),
  define("fill", "input", "Continues a column from examples.", ["examples", "pairs"], ["input", "text"]),
  define("list", "prompt", "Lists items, one a line.", ["prompt", "text"], ["count?", "number"]),
  define(
    "rate", "text", "Rates the text with an integer of the scale.",
    ["text", "text"], ["criterion?", "text"], ["low?", "number"], ["high?", "number"],
  ),
];

/** All functions, by the name that a formula has: `AI.CLASSIFY`. */
export const CATALOGUE: ReadonlyMap<string, AiFunction> = new Map(
  FUNCTIONS.map((item) => [`AI.${item.name.toUpperCase()}`, item]),
);
