// The content security policy of the pages in a browser: what users store on the same origin never
// runs as a script of a page, and never formats one.
import { expect, test } from "vitest";

import { heading, openWatchedPage, startSite } from "./harness.ts";

const site = startSite();

test("a public object is neither a script nor a style sheet of a page, and a script of the web app is", async () => {
  const { portico, context } = site;
  const { storage } = portico.client({}, portico.status.SECRET_KEY);
  await storage.createBucket("site", { public: true });
  const address = async (name: string, contentType: string, text: string): Promise<string> => {
    expect((await storage.from("site").upload(name, text, { contentType })).error).toBeNull();
    return new URL(storage.from("site").getPublicUrl(name).data.publicUrl).pathname;
  };
  const script = await address("evil.js", "text/javascript", "document.documentElement.dataset.evil = 'script';");
  const module = await address("evil.mjs", "text/javascript", "document.documentElement.dataset.evil = 'module';");
  const style = await address("evil.css", "text/css", "body { visibility: hidden }");

  const { page } = await openWatchedPage(context, portico.url);
  await page.addInitScript(() => {
    const refused: string[] = [];
    Object.assign(window, { refused });
    document.addEventListener("securitypolicyviolation", (event) => refused.push(`${event.effectiveDirective} ${new URL(event.blockedURI).pathname}`));
  });
  // Markup that got into a page, under the headers of the page
  const markup = `<script src="${script}"></script><script type="module" src="${module}"></script><link rel="stylesheet" href="${style}"><script src="/theme.js?again"></script>`;
  await page.route(`${portico.url}/sign-in`, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replace("</body>", `${markup}</body>`) });
  });
  await page.goto(`${portico.url}/sign-in`);
  // The page itself works
  await heading(page, /^Welcome back$/);
  const refused = await page.evaluate(() => (window as unknown as { refused: string[] }).refused);
  expect(refused.sort()).toEqual([`script-src-elem ${script}`, `script-src-elem ${module}`, `style-src-elem ${style}`].sort());
  expect(await page.evaluate(() => [document.documentElement.dataset["evil"], getComputedStyle(document.body).visibility])).toEqual([undefined, "visible"]);
  // No path inside of the folder leads out of it
  for (const path of [`/assets/..${script}`, `/assets/..%2f${script.slice(1)}`, `/assets/%2e%2e${script}`]) {
    // As text, in which the test runner does not replace the import
    const error = await page.evaluate<string>(`import(${JSON.stringify(path)}).then(() => "", String)`);
    expect(error, path).toContain("TypeError");
  }
});
