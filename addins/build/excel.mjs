// Builds Excel's add-in: the page of the shared runtime, its script, the functions' metadata and the manifest.

import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { deflateSync } from "node:zlib";

import metadata from "custom-functions-metadata";
import { build } from "esbuild";

const at = (path) => fileURLToPath(new URL(`../excel/${path}`, import.meta.url));

/** What Microsoft's own generator makes of the functions' comments. */
async function metadataOf(functions) {
  const file = join(tmpdir(), `relserve-functions-${process.pid}.js`);
  await writeFile(file, functions);
  try {
    const { metadataJson, errors } = await metadata.generateCustomFunctionsMetadata(file);
    if (errors.length > 0) throw new Error(`the functions' metadata: ${errors.join("; ")}`);
    return metadataJson;
  } finally {
    await rm(file);
  }
}

/** The build for an address, into a folder; functions are source text. */
export async function buildExcel(functions, address, dist) {
  if (!/^https:\/\/[^\s/?#]+(\/[^\s?#]*)?$/.test(address)) throw new Error(`Excel takes https addresses only, not ${address}`);
  await rm(dist, { recursive: true, force: true });
  await mkdir(dist, { recursive: true });
  const made = await build({
    entryPoints: [at("src/main.ts")], bundle: true, format: "iife", globalName: "RelServe",
    target: "es2020", charset: "utf8", legalComments: "none", write: false,
  });
  await writeFile(`${dist}/functions.js`, `${made.outputFiles[0].text}\n${functions}`);
  await writeFile(`${dist}/functions.json`, `${await metadataOf(functions)}\n`);
  const [page, pane] = await Promise.all([readFile(at("src/taskpane.html"), "utf8"), readFile(at("../pane/pane.html"), "utf8")]);
  await writeFile(`${dist}/taskpane.html`, page.replace("<!-- pane -->\n", () => pane));
  await cp(at("../pane/pane.css"), `${dist}/taskpane.css`);
  for (const size of [16, 32, 64, 80]) await writeFile(`${dist}/icon-${size}.png`, icon(size));
  const manifest = await readFile(at("manifest.xml"), "utf8");
  await writeFile(`${dist}/manifest.xml`, manifest.replaceAll("https://localhost:3000", address.replace(/\/+$/, "")));
}

/** A square with three bars, as a PNG: an add-in must have icons, and no picture need be kept in the tree. */
function icon(size) {
  const rows = [];
  for (let y = 0; y < size; y += 1) {
    const row = [0];
    for (let x = 0; x < size; x += 1) {
      const bar = Math.floor((y * 7) / size);
      const isBar = bar % 2 === 1 && x >= size / 7 && x < (size * (bar + 1)) / 7;
      row.push(...(isBar ? [255, 255, 255, 255] : [31, 94, 168, 255]));
    }
    rows.push(...row);
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(size, 0);
  head.writeUInt32BE(size, 4);
  head.set([8, 6, 0, 0, 0], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const parts = [["IHDR", head], ["IDAT", deflateSync(Buffer.from(rows))], ["IEND", Buffer.alloc(0)]];
  return Buffer.concat([signature, ...parts.map(([name, data]) => chunk(name, data))]);
}

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  out.set(body, 4);
  out.writeUInt32BE(crc(body), body.length + 4);
  return out;
}

/** CRC-32 of a PNG chunk (PNG specification, annex D). */
function crc(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  }
  return (sum ^ 0xffffffff) >>> 0;
}
