import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts", "oidc/**/*.test.ts", "browser/**/*.test.ts"],
    globalSetup: ["harness/prepared.ts"],
    // Each file starts a server and a PostgreSQL of its own; two at a time keep both cores busy
    // without starving one another.
    maxWorkers: 2,
    // A worker loads the clients and the harness once for all of its files, and not for each. What
    // modules keep are counters that make names unique.
    isolate: false,
    // Generous, because nothing here measures time: a limit only ends a test that hangs.
    testTimeout: 120_000,
    hookTimeout: 180_000,
    teardownTimeout: 60_000,
    expect: { poll: { timeout: 30_000 } },
  },
});
