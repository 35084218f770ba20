// The page of an application of another origin, with a script that is bundled as an application's
// is.
import { join } from "node:path";

import { build } from "vite";
import { afterAll, beforeAll } from "vitest";

import { signedUp } from "../harness/accounts.ts";
import type { ProjectFiles } from "../harness/portico.ts";
import { type ApplicationPage, serveApplicationPage, type Site, startSite } from "./harness.ts";

/** The running program, the browser and the application of one test file. */
export interface ApplicationSite extends Site {
  application: ApplicationPage;
  /** A user of the application. */
  alice: Awaited<ReturnType<typeof signedUp>>;
}

/**
 * Starts the program with a project, a browser, and an application of one page with its script, for
 * all tests of the file that calls this.
 */
export function startApplication(project: ProjectFiles, script: string, html: string): ApplicationSite {
  // Filled before the first test runs
  const site = startSite(project) as ApplicationSite;
  beforeAll(async () => {
    [site.application, site.alice] = await Promise.all([serveApplication(script, html), signedUp(site.portico)]);
  });
  afterAll(() => {
    site.application.close();
  });
  return site;
}

/** Bundles a script of this folder, and serves it with the HTML of a page that loads `/page.js`. */
async function serveApplication(script: string, html: string): Promise<ApplicationPage> {
  const built = await build({
    logLevel: "error",
    configFile: false,
    root: import.meta.dirname,
    build: { write: false, minify: false, rolldownOptions: { input: join(import.meta.dirname, script), output: { entryFileNames: "page.js", codeSplitting: false } } },
  });
  const outputs = [built].flat().flatMap((bundle) => ("output" in bundle ? bundle.output : []));
  const { code } = outputs.find((file) => file.type === "chunk")!;
  return serveApplicationPage(html, code);
}
