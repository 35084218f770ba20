// Sign-in with Google against an independent OpenID provider, so that the emulated one is not its
// only proof.
import { generateKeyPairSync } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import Provider from "oidc-provider";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Portico } from "../harness/portico.ts";

const person = { sub: "108923476", email: "independent@portico.test", email_verified: true, name: "Ida Pendent", picture: "https://portico.test/ida.png" };

let provider: Server;
let issuer: string;
let portico: Portico;

beforeAll(async () => {
  provider = createServer();
  await new Promise<void>((done) => provider.listen(0, "127.0.0.1", done));
  issuer = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  portico = await Portico.start({
    config: `
[auth]
site_url = "http://127.0.0.1:3000"
additional_redirect_urls = ["http://127.0.0.1:3000/**"]
[auth.external.google]
enabled = true
client_id = "independent-client"
secret = "independent-secret"
url = "${issuer}"
`,
  });
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const oidc = new Provider(issuer, {
    clients: [{ client_id: "independent-client", client_secret: "independent-secret", redirect_uris: [`${portico.url}/auth/v1/callback`], response_types: ["code"], grant_types: ["authorization_code"] }],
    jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: "one", use: "sig", alg: "RS256" }] },
    cookies: { keys: ["a key for the cookies of this test"] },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "picture"] },
    conformIdTokenClaims: false,
    pkce: { required: () => false },
    features: { devInteractions: { enabled: true } },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ ...person, sub: id }) }),
  });
  const handle = oidc.callback();
  provider.on("request", (request, response) => void handle(request, response));
});
afterAll(async () => {
  await portico.dispose();
  provider.closeAllConnections();
  await new Promise((done) => provider.close(done));
});

/**
 * Follows redirects and submits the provider's own login and consent forms, as a browser would,
 * until `until` is reached.
 */
async function browse(start: string, until: (url: URL) => boolean): Promise<URL> {
  const cookies = new Map<string, string>();
  let url = new URL(start);
  let init: RequestInit = {};
  for (let step = 0; step < 20; step += 1) {
    const response = await fetch(url, { ...init, redirect: "manual", headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") } });
    init = {};
    for (const cookie of response.headers.getSetCookie()) {
      const [name, value] = cookie.split(";", 1)[0]!.split(/=(.*)/s);
      cookies.set(name!, value!);
    }
    const location = response.headers.get("location");
    if (location !== null) {
      url = new URL(location, url);
      if (until(url)) return url;
      continue;
    }
    const page = await response.text();
    const action = /<form[^>]*action="([^"]+)"/.exec(page)?.[1];
    if (action === undefined) throw new Error(`no form at ${url.href}: ${response.status} ${page.slice(0, 500)}`);
    const prompt = /name="prompt" value="([^"]+)"/.exec(page)?.[1] ?? "consent";
    url = new URL(action.replaceAll("&amp;", "&"), url);
    init = { method: "POST", body: new URLSearchParams({ prompt, login: person.sub, password: "any" }) };
  }
  throw new Error("the flow has too many steps");
}

test("a user of an independent OpenID provider signs in through the Google code path", async () => {
  const client = portico.client({ auth: { flowType: "pkce" } });
  const { data, error } = await client.auth.signInWithOAuth({ provider: "google", options: { redirectTo: "http://127.0.0.1:3000/app", skipBrowserRedirect: true } });
  expect(error).toBeNull();
  const back = await browse(data.url!, (url) => url.port === "3000");
  expect(back.pathname).toBe("/app");
  const exchanged = await client.auth.exchangeCodeForSession(back.searchParams.get("code")!);
  expect(exchanged.error).toBeNull();
  expect(exchanged.data.user).toMatchObject({
    email: person.email,
    app_metadata: { provider: "google", providers: ["google"] },
    user_metadata: { name: person.name, email_verified: true, sub: person.sub },
  });
  const again = portico.client({ auth: { flowType: "pkce" } });
  const second = await again.auth.signInWithOAuth({ provider: "google", options: { redirectTo: "http://127.0.0.1:3000/app", skipBrowserRedirect: true } });
  const returned = await browse(second.data.url!, (url) => url.port === "3000");
  const session = await again.auth.exchangeCodeForSession(returned.searchParams.get("code")!);
  expect(session.data.user?.id).toBe(exchanged.data.user?.id);
});
