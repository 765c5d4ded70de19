// The sheets' functions as source with the comments that the sheets read, one for each function of the catalogue.

/** The arguments of a function, the kept answer last. */
function argumentsOf(item, { KEPT, KEPT_HELP, helpOf }) {
  const own = item.arguments.map(({ name, optional }) => ({ name, optional, help: helpOf(name) }));
  return [...own, { name: KEPT, optional: true, help: KEPT_HELP }];
}

/** Functions for Sheets: `AI_CLASSIFY`, since a name of its own cannot hold a dot. */
export function sheetsFunctions(shared) {
  return shared.FUNCTIONS.map((item) => {
    const args = argumentsOf(item, shared);
    const lines = args.map(({ name, optional, help }) => ` * @param {any} ${optional ? `[${name}]` : name} ${help}`);
    const names = item.arguments.map(({ name }) => name).join(", ");
    const upper = item.name.toUpperCase();
    return [
      "/**", ` * ${item.summary}`, " *", ...lines, " * @return {any} The answer, or one for each cell of a range.",
      " * @customfunction", " */",
      `function AI_${upper}(${args.map(({ name }) => name).join(", ")}) {`,
      `  return RelServe.run("AI.${upper}", [${names}], ${shared.KEPT});`, "}", "",
    ].join("\n");
  }).join("\n");
}

/**
 * Functions for Excel, streaming: the namespace of the manifest makes `AI.CLASSIFY` of `CLASSIFY`. Every argument is
 * a range to Excel; a single cell arrives as a range of one.
 */
export function excelFunctions(shared) {
  return shared.FUNCTIONS.map((item) => {
    const args = argumentsOf(item, shared);
    const lines = args.map(({ name, optional, help }) => ` * @param {any[][]} ${optional ? `[${name}]` : name} ${help}`);
    const names = item.arguments.map(({ name }) => name).join(", ");
    const upper = item.name.toUpperCase();
    return [
      "/**", ` * ${item.summary}`, ` * @customfunction ${upper} ${upper}`, ...lines,
      " * @param {CustomFunctions.StreamingInvocation<any[][]>} invocation Where answers go.", " */",
      `function ${item.name}_(${args.map(({ name }) => name).join(", ")}, invocation) {`,
      `  RelServe.run("AI.${upper}", [${names}], ${shared.KEPT}, invocation);`, "}",
      `CustomFunctions.associate("${upper}", ${item.name}_);`, "",
    ].join("\n");
  }).join("\n");
}
