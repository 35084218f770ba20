import type { Plugin } from "vite";

/**
 * Preloads the one font file of the first paint, so that text does not change its font after the
 * first paint.
 */
export function preloadFont(fragment: string): Plugin {
  return {
    name: "portico:preload-font",
    apply: "build",
    transformIndexHtml: {
      order: "post",
      handler(_html, { bundle }) {
        return Object.keys(bundle ?? {})
          .filter((file) => file.includes(fragment) && file.endsWith(".woff2"))
          .map((file) => ({
            tag: "link",
            attrs: { rel: "preload", href: `/${file}`, as: "font", type: "font/woff2", crossorigin: true },
            injectTo: "head" as const,
          }));
      },
    },
  };
}
