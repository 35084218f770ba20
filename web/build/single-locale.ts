import type { Plugin } from "vite";

/**
 * Exports the text of each message without a choice of the locale. That choice, and the runtime
 * behind it, are 2 KiB (compressed) that the landing page's budget does not have. With a second
 * language this plugin goes, like the option `experimentalStaticLocale` in `messages.js`.
 */
export function singleLocale(locale: string): Plugin {
  return {
    name: "portico:single-locale",
    enforce: "pre",
    transform(code, id) {
      if (!/\/src\/paraglide\/messages\/(?!_index)\w+\.js$/.test(id)) return null;
      const single = code
        .replace(/^import { getLocale, .*\n/m, "")
        .replace(/^export const (\w+) =[\s\S]*/m, `export { ${locale}_$1 as $1 };\n`);
      return { code: single, map: null };
    },
  };
}
