// The AI functions in the language of the page.

import type { AiFunction } from "relserve-client/catalogue";

import { t } from ".";

/** What a function does, in one sentence. */
export function summaryOf({ name, summary }: AiFunction): string {
  return (t.functions as Record<string, string>)[name] ?? summary;
}

/** What people read an argument's name as. */
export function argumentName(name: string): string {
  return (t.column.arguments as Record<string, string>)[name] ?? name;
}
