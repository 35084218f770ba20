import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { precompress } from "./build/precompress.ts";
import { preloadFont } from "./build/preload-font.ts";

// While the pages are developed with `npm run dev -w web`, everything else is answered by `portico dev`.
const server = process.env.PORTICO_URL ?? "http://127.0.0.1:54321";

export default defineConfig({
  plugins: [react(), tailwindcss(), preloadFont("instrument-sans-latin-wght-normal"), precompress()],
  build: {
    // The oldest browsers that know `light-dark()`, which the design tokens rest on.
    target: ["chrome123", "edge123", "firefox120", "safari17.5"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    manifest: "manifest.json",
    reportCompressedSize: false,
  },
  server: { proxy: { "/auth/v1": server, "/portico": server, "/rest/v1": server, "/storage/v1": server, "/functions/v1": server } },
  test: {
    environment: "jsdom",
    environmentOptions: { jsdom: { url: "http://portico.test/" } },
    setupFiles: ["src/testing/setup.ts"],
    restoreMocks: true,
    unstubGlobals: true,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
