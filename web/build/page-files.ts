import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Plugin, Rollup } from "vite";

const box = (size: string) => `<div aria-hidden="true" class="skeleton ${size}"></div>`;

/** `FormSkeleton` of `components/guards.tsx`. */
const formSkeleton = `<div aria-busy="true" class="grid flex-1 gap-x-16 lg:grid-cols-[1fr_minmax(0,27rem)]"><div class="mx-auto w-full max-w-sm space-y-4 py-10 lg:py-16">${box("h-10 w-3/5")}${box("h-11 w-full").repeat(3)}</div><div class="hidden min-h-[34rem] rounded border border-line bg-sunken lg:block"></div></div>`;

/** `OverviewSkeleton` of `features/account/overview.tsx`. */
const overviewSkeleton = `<div aria-busy="true" class="space-y-8 py-8 lg:py-12"><div class="flex items-center gap-5">${box("size-16 shrink-0 rounded-full")}<div class="flex-1 space-y-3">${box("h-8 w-64 max-w-full")}${box("h-4 w-80 max-w-full")}</div></div><div class="grid gap-6 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">${box("h-64 w-full").repeat(2)}</div></div>`;

/** Pages that a visitor reads and fills in before the authentication client is needed. */
const visitorPages = new Set(["/sign-in", "/sign-up", "/forgot-password", "/mailbox"]);

function skeletonOf(path: string): string {
  if (path === "/app" || path.startsWith("/app/")) return overviewSkeleton;
  return path === "/" || path === "/404" || path === "/mailbox" ? "" : formSkeleton;
}

/**
 * Writes an HTML file for each page of `src/page-code.ts`, such as `sign-in.html`, and `404.html` for every other
 * address. Each shows the page's skeleton, and requests all scripts of the page at once instead of one after the other.
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
      handler(_options, bundle) {
        const index = bundle["index.html"];
        if (index?.type !== "asset") return;
        const html = String(index.source);
        const graph = chunkGraph(bundle, root);
        const pages = [...pageSources(root), ["/404", "src/routes/not-found.tsx"] as const];
        for (const [path, source] of pages) {
          const isForVisitors = visitorPages.has(path) || path === "/404";
          const modules = ["src/pages.tsx", source, ...(isForVisitors ? [] : ["@supabase/auth-js"])];
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
  const links = files.map((file) => `    <link rel="modulepreload" crossorigin href="/${file}">\n`).join("");
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
