// Builds both add-ins: `sheets/dist` is what clasp pushes, `excel/dist` is what a web server serves.
//
//   node build/build.mjs [address at which excel/dist is served]
//   node build/build.mjs --served     into dist/: what a RelServe server serves at /addins, with its own address

import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { excelFunctions, sheetsFunctions } from "./functions.mjs";
import { buildExcel } from "./excel.mjs";

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url));

/** The server puts its own address in place of this. */
const SERVED = "https://relserve.invalid";

/** The catalogue and the help texts, which are TypeScript. */
async function shared() {
  const made = await build({ entryPoints: [at("shared/help.ts")], bundle: true, format: "esm", write: false });
  return import(`data:text/javascript;base64,${Buffer.from(made.outputFiles[0].contents).toString("base64")}`);
}

/** The sidebar as one page: Apps Script serves no files beside it. */
async function sheetsPanel() {
  const made = await build({
    entryPoints: [at("sheets/panel/main.ts")], bundle: true, format: "iife", target: "es2022", charset: "utf8",
    legalComments: "none", minify: true, write: false,
  });
  const [page, pane, style] = await Promise.all(
    ["sheets/panel/panel.html", "pane/pane.html", "pane/pane.css"].map((path) => readFile(at(path), "utf8")));
  return page.replace("<!-- pane -->\n", () => pane).replace("/* style */\n", () => style)
    .replace("/* script */\n", () => made.outputFiles[0].text);
}

/** The Apps Script project as one file; `address` is what its panel offers. */
async function sheetsScript(functions, address) {
  // Plain functions: Apps Script has no modules, and finds custom functions by their top-level names.
  const made = await build({
    entryPoints: [at("sheets/src/main.ts")], bundle: true, format: "iife", globalName: "RelServe",
    target: "es2019", charset: "utf8", legalComments: "none", write: false,
  });
  const globals = await readFile(at("sheets/src/globals.js"), "utf8");
  const panel = await sheetsPanel();
  const constants = [`const RELSERVE_URL = ${JSON.stringify(address)};`, `const RELSERVE_PANEL = ${JSON.stringify(panel)};`, ""];
  return [functions, globals, ...constants, made.outputFiles[0].text].join("\n");
}

async function buildSheets(functions) {
  const dist = at("sheets/dist");
  await rm(dist, { recursive: true, force: true });
  await mkdir(dist, { recursive: true });
  await writeFile(`${dist}/Code.js`, await sheetsScript(functions, ""));
  await cp(at("sheets/appsscript.json"), `${dist}/appsscript.json`);
}

/** What the server carries. The page comes last: it says that all is there. */
async function buildServed(catalogue) {
  for (const part of ["excel", "sheets", "libreoffice", "page"]) await rm(at(`dist/${part}`), { recursive: true, force: true });
  await buildExcel(excelFunctions(catalogue), `${SERVED}/addins/excel`, at("dist/excel"));
  await mkdir(at("dist/sheets"), { recursive: true });
  await writeFile(at("dist/sheets/RelServe.gs"), await sheetsScript(sheetsFunctions(catalogue), SERVED));
  await buildExtension(at("dist/libreoffice"));
  await mkdir(at("dist/page"), { recursive: true });
  await cp(at("../client/src/tokens.css"), at("dist/page/tokens.css"));
  await cp(at("page"), at("dist/page"), { recursive: true });
}

/** LibreOffice's extension as a folder: the server makes the zip of it, with its address. */
async function buildExtension(dist) {
  for (const part of ["META-INF", "Addons.xcu", "description.xml", "pythonpath/relserve_cells.py", "relserve.components", "relserve.py"]) {
    await cp(at(`libreoffice/${part}`), `${dist}/${part}`, { recursive: true });
  }
}

const catalogue = await shared();
if (process.argv[2] === "--served") await buildServed(catalogue);
else {
  await rm(at("libreoffice/dist"), { recursive: true, force: true });
  await buildExtension(at("libreoffice/dist"));
  await buildSheets(sheetsFunctions(catalogue));
  await buildExcel(excelFunctions(catalogue), process.argv[2] ?? "https://localhost:3000", at("excel/dist"));
}
