import { readdirSync, statSync, writeFileSync } from "node:fs";
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

/** The sources of the compiled messages. The lock file names the version of the compiler. */
const sources = ["./src/locales", "./project.inlang/settings.json", "./build/messages.js", "../package-lock.json"];
const stamp = `${messageOptions.outdir}/.compiled`;

/**
 * Returns whether nothing has changed since the messages were compiled.
 *
 * @returns {boolean}
 */
function isCurrent() {
  const compiled = statSync(stamp, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const isOlder = (/** @type {string} */ path) => statSync(path).mtimeMs < compiled;
  return sources.every((source) => isOlder(source) && (!statSync(source).isDirectory() || readdirSync(source, { recursive: true }).every((name) => isOlder(`${source}/${name}`))));
}

// The scripts of package.json run this first. The development server compiles again when a text changes.
if (process.argv[1] === import.meta.filename && !isCurrent()) {
  await compile({ ...messageOptions });
  writeFileSync(stamp, "");
  // The compiler leaves timers of 30 seconds behind, which the process would wait for
  process.exit();
}
