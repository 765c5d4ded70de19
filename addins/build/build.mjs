// Builds both add-ins: `sheets/dist` is what clasp pushes, `excel/dist` is what a web server serves.
//
//   node build/build.mjs [address at which excel/dist is served]

import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { excelFunctions, sheetsFunctions } from "./functions.mjs";
import { buildExcel } from "./excel.mjs";

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url));

/** The catalogue and the help texts, which are TypeScript. */
async function shared() {
  const made = await build({ entryPoints: [at("shared/help.ts")], bundle: true, format: "esm", write: false });
  return import(`data:text/javascript;base64,${Buffer.from(made.outputFiles[0].contents).toString("base64")}`);
}

async function buildSheets(functions) {
  const dist = at("sheets/dist");
  await rm(dist, { recursive: true, force: true });
  await mkdir(dist, { recursive: true });
  // One file of plain functions: Apps Script has no modules, and finds custom functions by their top-level names.
  const made = await build({
    entryPoints: [at("sheets/src/main.ts")], bundle: true, format: "iife", globalName: "RelServe",
    target: "es2019", charset: "utf8", legalComments: "none", write: false,
  });
  const globals = await readFile(at("sheets/src/globals.js"), "utf8");
  await writeFile(`${dist}/Code.js`, [functions, globals, made.outputFiles[0].text].join("\n"));
  await cp(at("sheets/appsscript.json"), `${dist}/appsscript.json`);
  await cp(at("sheets/src/Dialog.html"), `${dist}/Dialog.html`);
}

const catalogue = await shared();
await buildSheets(sheetsFunctions(catalogue));
await buildExcel(excelFunctions(catalogue), process.argv[2] ?? "https://localhost:3000");
