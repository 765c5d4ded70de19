import { defineConfig } from "vitest/config";

// A test that hangs ends; one on a machine with much else to do is given its time.
const patience = { expect: { poll: { timeout: 30_000 } }, testTimeout: 120_000, hookTimeout: 120_000 };

export default defineConfig({
  test: { include: ["*/test/**/*.test.ts"], environment: "node", ...patience },
});
