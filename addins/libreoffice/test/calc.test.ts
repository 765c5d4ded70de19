// LibreOffice's extension: its Python tests, the second of them in a real LibreOffice (Debian's `libreoffice-calc` and
// `python3-uno`), which is skipped where there is none.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

import { expect, test } from "vitest";

/** The Python that Debian's packages are for. */
const PYTHON = process.env.PYTHON ?? "/usr/bin/python3";
const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const runs = (program: string, ...args: string[]) => spawnSync(program, args).status === 0;

test.skipIf(!runs(PYTHON, "--version"))("what a column asks", () => {
  const { status, stderr } = spawnSync(PYTHON, [at("test_cells.py")], { encoding: "utf8" });
  expect(status, stderr).toBe(0);
  expect(stderr).toMatch(/Ran \d+ tests/);
});

test.skipIf(!runs(PYTHON, "-c", "import uno") || !runs("sh", "-c", "command -v soffice"))("columns in a real LibreOffice", () => {
  const { status, stdout, stderr } = spawnSync(PYTHON, [at("calc.py"), at("../dist")], { encoding: "utf8" });
  expect(status, stdout + stderr).toBe(0);
  expect(stdout).toContain("- 1,200 cells, once they were allowed");
});
