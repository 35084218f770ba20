import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createElement, type FunctionComponent } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { type Plugin, type Rollup, runnerImport } from "vite";

/** Pages that a visitor reads and fills in before the authentication client is needed. */
const visitorPages = new Set(["/sign-in", "/sign-up", "/forgot-password", "/mailbox"]);

/** Pages whose place stays empty until their content is there. */
const withoutSkeleton = new Set(["/", "/404", "/mailbox"]);

type Skeletons = typeof import("../src/components/page-skeletons.tsx");

/**
 * Returns the function that renders the placeholder of a page, as the page itself does while it
 * loads.
 */
async function loadSkeletons(root: string): Promise<(path: string) => string> {
  const { module } = await runnerImport<Skeletons>(resolve(root, "src/components/page-skeletons.tsx"));
  const { FormSkeleton, OverviewSkeleton, SecuritySkeleton } = module;
  const own: Record<string, FunctionComponent> = { "/app": OverviewSkeleton, "/app/security": SecuritySkeleton };
  return (path) => (withoutSkeleton.has(path) ? "" : renderToStaticMarkup(createElement(own[path] ?? FormSkeleton)));
}

/**
 * Writes an HTML file for each page of `src/page-code.ts`, such as `sign-in.html`, and `404.html`
 * for every other address. Each shows the page's skeleton, and requests all scripts of the page at
 * once instead of one after the other.
 */
export function pageFiles(): Plugin {
  let root = "";
  return {
    name: "portico:page-files",
    apply: "build",
    configResolved(config) {
      root = config.root;
    },
    generateBundle: {
      order: "post",
      async handler(_options, bundle) {
        const index = bundle["index.html"];
        if (index?.type !== "asset") return;
        // The resources of the frame come first: the style sheet and the font.
        const html = String(index.source).replace('<script type="module"', '<script type="module" fetchpriority="low"');
        const skeletonOf = await loadSkeletons(root);
        const graph = chunkGraph(bundle, root);
        const pages = [...pageSources(root), ["/404", "src/routes/not-found.tsx"] as const];
        for (const [path, source] of pages) {
          const isForVisitors = visitorPages.has(path) || path === "/404";
          const modules = ["src/pages.tsx", source, ...(isForVisitors ? [] : ["@supabase/auth-js", "src/components/account-menu.tsx"])];
          const links = graph.filesOf(modules).filter((file) => !html.includes(`"/${file}"`));
          this.emitFile({ type: "asset", fileName: `${path.slice(1)}.html`, source: page(html, skeletonOf(path), links) });
        }
        index.source = page(html, skeletonOf("/"), []);
      },
    },
  };
}

/** Returns the path and the module of each page. */
function pageSources(root: string): [path: string, source: string][] {
  const code = readFileSync(join(root, "src/page-code.ts"), "utf8");
  const found = [...code.matchAll(/^ {2}"(\/[^"]*)": \(\) => import\("\.\/(routes\/[^"]+)"\)/gm)];
  return found.map(([, path = "", file = ""]) => [path, `src/${file}.tsx`]);
}

/** Returns the page with its skeleton and its preloaded scripts. */
function page(html: string, skeleton: string, files: string[]): string {
  const links = files.map((file) => `    <link rel="modulepreload" fetchpriority="low" crossorigin href="/${file}">\n`).join("");
  return html.replace("<!--page-->", skeleton).replace("  </head>", `${links}  </head>`);
}

function chunkGraph(bundle: Rollup.OutputBundle, root: string) {
  const chunks = Object.values(bundle).filter((output) => output.type === "chunk");
  const byFile = new Map(chunks.map((chunk) => [chunk.fileName, chunk]));
  const holds = (chunk: Rollup.OutputChunk, module: string) =>
    chunk.moduleIds.some((id) => (module.startsWith("src/") ? id === resolve(root, module) : id.includes(`/node_modules/${module}/`)));

  return {
    /** Returns the files of modules, and of everything that they import. */
    filesOf(modules: string[]): string[] {
      const files = new Set<string>();
      const add = (file: string) => {
        const chunk = byFile.get(file);
        if (!chunk || files.has(file)) return;
        files.add(file);
        chunk.imports.forEach(add);
      };
      for (const module of modules) {
        const found = chunks.filter((chunk) => holds(chunk, module));
        if (found.length === 0) throw new Error(`No chunk of the build has ${module}`);
        found.forEach((chunk) => add(chunk.fileName));
      }
      return [...files];
    },
  };
}
