// What fits where somebody types in a formula: the functions that a name may become, and the function whose arguments are typed.
// Pure; the words of each function are `text/functions.ts`'s.

import { FUNCTION_NAMES } from "./evaluate";

/** A name that is being typed, and the functions that it may become. */
export interface Completion {
  /** Where the name begins and ends in the text; it may go on behind the caret. */
  from: number;
  to: number;
  names: readonly string[];
}

/** The call around a place, and which of its arguments that is in, from nought. */
export interface Call {
  name: string;
  argument: number;
}

/** The functions that a name at the caret may become; nothing where no function may stand. */
export function completionAt(text: string, caret: number, names = FUNCTION_NAMES): Completion | undefined {
  if (!text.startsWith("=") || isQuoted(text.slice(0, caret))) return undefined;
  const typed = /(?<![\w.$:!'])[A-Za-z][\w.]*$/.exec(text.slice(0, caret))?.[0] ?? "";
  const rest = /^[\w.]*/.exec(text.slice(caret))?.[0] ?? "";
  const sought = typed.toUpperCase();
  if (sought === "" || /^[!:]/.test(text.slice(caret + rest.length))) return undefined;
  // `CLASS` is enough for `AI.CLASSIFY`; what begins as it is typed comes first.
  const fitting = [names.filter((name) => name.startsWith(sought)), names.filter((name) => name.startsWith(`AI.${sought}`))].flat();
  return fitting.length === 0 ? undefined : { from: caret - typed.length, to: caret + rest.length, names: fitting };
}

/** The text with a function in place of the name, and where the caret stands then: in its brackets. */
export function completed(text: string, { from, to }: Completion, name: string, takesNothing: boolean): { text: string; caret: number } {
  const hasBracket = text[to] === "(";
  const call = `${name}${hasBracket ? "" : takesNothing ? "()" : "("}`;
  return { text: text.slice(0, from) + call + text.slice(to), caret: from + call.length + (hasBracket ? 1 : 0) };
}

/** The innermost call whose brackets the caret is in. */
export function callAt(text: string, caret: number): Call | undefined {
  if (!text.startsWith("=")) return undefined;
  const open: Call[] = [];
  // Texts in quotes, names with the bracket of their arguments, brackets and commas; an array's commas part none.
  for (const [sign, name] of text.slice(0, caret).matchAll(/"(?:[^"]|"")*(?:"|$)|'[^']*'|\{[^}]*(?:\}|$)|([A-Za-z][\w.]*)?\(|[),]/g)) {
    const innermost = open.at(-1);
    if (sign.endsWith("(")) open.push({ name: (name ?? "").toUpperCase(), argument: 0 });
    else if (sign === ")") open.pop();
    else if (sign === "," && innermost) innermost.argument += 1;
  }
  // Brackets that only group belong to the call around them.
  return open.findLast(({ name }) => name !== "");
}

/** Whether a text, or the quoted name of a sheet, is open at the end. */
function isQuoted(before: string): boolean {
  const outside = before.replace(/"[^"]*"/g, "");
  return outside.includes('"') || outside.split("'").length % 2 === 0;
}
