// The functions in the language of the page.

import { type AiFunction, CATALOGUE } from "relserve-client/catalogue";

import { t } from ".";

/** What a function is called with and does: one that asks the model by the catalogue, any other by the texts. */
export function helpOf(name: string): { parameters: readonly string[]; summary: string } {
  const item = CATALOGUE.get(name);
  if (item) {
    const parameters = item.arguments.map((argument) => {
      const own = argumentName(argument.name);
      return argument.optional ? `[${own}]` : own;
    });
    return { parameters, summary: summaryOf(item) };
  }
  const [parameters = "", summary = ""] = (t.ordinary as Record<string, string[]>)[name] ?? [];
  return { parameters: parameters === "" ? [] : parameters.split(", "), summary };
}

/** What a function does, in one sentence. */
export function summaryOf({ name, summary }: AiFunction): string {
  return (t.functions as Record<string, string>)[name] ?? summary;
}

/** What people read an argument's name as. */
export function argumentName(name: string): string {
  return (t.column.arguments as Record<string, string>)[name] ?? name;
}
