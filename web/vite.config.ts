import { paraglideVitePlugin } from "@inlang/paraglide-js";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { messageOptions } from "./build/messages.js";
import { pageFiles } from "./build/page-files.ts";
import { precompress } from "./build/precompress.ts";
import { preloadFont } from "./build/preload-font.ts";
import { singleLocale } from "./build/single-locale.ts";

// During `npm run dev -w web` every request but those for pages goes to `portico dev`.
const server = process.env.PORTICO_URL ?? "http://127.0.0.1:54321";

export default defineConfig(({ command, mode }) => ({
  plugins: [
    // The scripts of package.json compile the messages before a build or a test. The development
    // server does it again whenever a text changes.
    command === "serve" && mode === "development" && paraglideVitePlugin(messageOptions),
    singleLocale("en"),
    react(),
    tailwindcss(),
    preloadFont("instrument-sans-latin-wght-normal"),
    pageFiles(),
    precompress(),
  ],
  resolve: {
    // wouter brings the hook for versions of React that lack it.
    alias: [{ find: /^use-sync-external-store\/shim.*$/, replacement: "react" }],
  },
  build: {
    // The oldest browsers with `light-dark()`, which the design tokens use.
    target: ["chrome123", "edge123", "firefox120", "safari17.5"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    manifest: "manifest.json",
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            // Few chunks: each is a request, and a name in the first script.
            { name: "initial", tags: ["$initial"], priority: 3 },
            // Signed-in users have it on the landing page too, without the scripts of other pages.
            { name: "account-menu", test: /\/src\/components\/account-menu\.tsx$/, priority: 2 },
            { name: "shared", minShareCount: 3, priority: 1 },
          ],
        },
      },
    },
  },
  server: { proxy: { "/auth/v1": server, "/portico": server, "/rest/v1": server, "/storage/v1": server, "/realtime/v1": { target: server, ws: true }, "/functions/v1": server } },
  test: {
    environment: "jsdom",
    environmentOptions: { jsdom: { url: "http://portico.test/" } },
    setupFiles: ["src/testing/setup.ts"],
    restoreMocks: true,
    unstubGlobals: true,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
}));
