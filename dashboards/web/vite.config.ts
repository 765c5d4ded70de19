// The page is served by the gateway from its own address, so every URL is relative.

import { readFileSync, readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type IconNode, icons as drawings } from "lucide";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * The one `eval` of the grid stands in its formula engine, which is off; and its corner has an inline handler, which
 * `ui/grid.css` stands in for. Both are cut out, so that the page holds under a policy without `unsafe-eval` and
 * `unsafe-inline`, and nothing can bring them back to life.
 */
const GRID_CUTS: readonly Cut[] = [
  [/eval\("typeof\("\+tokens\[i\]\+'\) == "undefined"'\)/, "false"],
  [/\w+\.corner\.setAttribute\("onselectstart","return false"\),/, ""],
];
/** Each grid has a menu, which the page does not use: it listens to the window for ever, and would keep its grid in memory. */
const PARTS_CUTS: readonly Cut[] = [
  [/window\.addEventListener\("mousewheel", function \(\) \{\s*obj\.close\(\);\s*\}\);/, ""],
];
type Cut = readonly [RegExp, string];

function without(code: string, cuts: readonly Cut[], name: string): string {
  return cuts.reduce((left, [what, instead]) => {
    if (!what.test(left)) throw new Error(`${name} changed: look for ${what} again`);
    return left.replace(what, instead);
  }, code);
}

const withoutInline: Plugin = {
  name: "without-inline",
  enforce: "pre",
  transform(code, id) {
    if (id.endsWith("jsuites/dist/jsuites.js")) return without(code, PARTS_CUTS, "jsuites");
    if (!id.endsWith("jspreadsheet-ce/dist/index.js")) return undefined;
    const cut = without(code, GRID_CUTS, "jspreadsheet-ce");
    if (/\beval\(|setAttribute\("on/.test(cut)) throw new Error("jspreadsheet-ce has another `eval` or inline handler");
    return cut;
  },
};

/** The licences of what is shipped, as `licenses.txt` beside it: their authors ask no more than that. */
const licenses: Plugin = {
  name: "licenses",
  generateBundle(_, bundle) {
    const found = new Set<string>();
    for (const chunk of Object.values(bundle)) {
      for (const id of chunk.type === "chunk" ? chunk.moduleIds : []) {
        const name = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1];
        if (name) found.add(name);
      }
    }
    const texts = [...found].sort().map((name) => {
      const folder = here(`./node_modules/${name}`);
      const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
      if (!file) throw new Error(`${name} has no licence file: look at it before it is shipped`);
      return `${name}\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
    });
    this.emitFile({ type: "asset", fileName: "licenses.txt", source: texts.join(`\n${"-".repeat(72)}\n\n`) });
  },
};

/**
 * Icons of `index.html`: `<i data-icon="undo-2"></i>` becomes Lucide's drawing of that name, so that they are there with the
 * first paint and without a request. `src/ui/icon.ts` makes those that come later.
 */
const icons: Plugin = {
  name: "icons",
  transformIndexHtml: (html) => html.replace(/<i data-icon="([\w-]+)"><\/i>/g, (_, name: string) => {
    const drawing = (drawings as Record<string, IconNode>)[name.replace(/(?:^|-)(\w)/g, (_, letter: string) => letter.toUpperCase())];
    if (!drawing) throw new Error(`Lucide has no icon ${name}`);
    const shapes = drawing.map(([tag, attributes]) =>
      `<${tag} ${Object.entries(attributes).map(([key, value]) => `${key}="${value}"`).join(" ")}/>`);
    return `<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">${shapes.join("")}</svg>`;
  }),
};

/** Old hashed files must not ship; `dist` itself stays, because the gateway's build watches it. */
const withoutOld: Plugin = {
  name: "without-old",
  apply: "build",
  buildStart: () => rmSync(here("./dist/assets"), { recursive: true, force: true }),
};

export default defineConfig({
  base: "./",
  plugins: [icons, withoutInline, withoutOld, licenses],
  resolve: {
    // The grid's own formula engine makes code out of cell texts (`src/core/parse.ts` says more): it is left out.
    alias: { "@jspreadsheet/formula": here("./src/ui/no-formula.ts"), "@examples": here("../../examples") },
  },
  build: {
    emptyOutDir: false,
    target: "es2022",
    // No inlined data in the page: a policy without `data:` must hold for all but the grid's icons.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: {
    proxy: { "/v1": "http://127.0.0.1:8080", "/healthz": "http://127.0.0.1:8080" },
    // All that the page is made of: its own folder, what it shares with the add-ins, and its sample.
    fs: { allow: [here("."), here("../../client"), here("../../examples")] },
  },
  // No test judges the time that it takes.
  test: { include: ["test/**/*.test.ts"], environment: "node", testTimeout: 120_000 },
});
