import process from "node:process";
import { compile } from "@inlang/paraglide-js";

/**
 * The settings of the compiler that turns `src/locales` into the typed functions of `src/paraglide`.
 *
 * @type {import("@inlang/paraglide-js").CompilerOptions}
 */
export const messageOptions = {
  project: "./project.inlang",
  outdir: "./src/paraglide",
  // With one language the choice of the locale costs nothing at run time. A second language removes this line and
  // names a strategy that finds the user's.
  experimentalStaticLocale: '"en"',
  strategy: ["baseLocale"],
  // The same output in development and production, a module for each message: a page loads only its own.
  outputStructure: "message-modules",
  emitReadme: false,
  emitPrettierIgnore: false,
};

// The scripts of package.json run this first. The development server compiles again when a text changes.
if (process.argv[1] === import.meta.filename) await compile({ ...messageOptions });
