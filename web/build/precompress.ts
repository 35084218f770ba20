import { readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import type { Plugin } from "vite";

const compressible = /\.(?:js|css|html|svg|json|txt|webmanifest)$/;

/**
 * Writes a `.br` and a `.gz` file beside every text file of the build, so that the server never
 * compresses the same bytes twice. A compressed file that is not smaller is left out.
 */
export function precompress(): Plugin {
  let folder = "dist";
  return {
    name: "portico:precompress",
    apply: "build",
    configResolved(config) {
      folder = resolve(config.root, config.build.outDir);
    },
    async closeBundle() {
      const files = await readdir(folder, { recursive: true });
      await Promise.all(files.filter((file) => compressible.test(file)).map((file) => compressFile(join(folder, file))));
    },
  };
}

async function compressFile(path: string): Promise<void> {
  const content = await readFile(path);
  const brotli = await promisify(brotliCompress)(content, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length },
  });
  const zipped = await promisify(gzip)(content, { level: 9 });
  if (brotli.length < content.length) await writeFile(`${path}.br`, brotli);
  if (zipped.length < content.length) await writeFile(`${path}.gz`, zipped);
}
