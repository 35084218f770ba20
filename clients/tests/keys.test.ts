// Signing keys that change while the server runs, and tokens of third parties, with the official
// client.
import { createPrivateKey, generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { rm } from "node:fs/promises";

import { createClient, type SupabaseClient } from "@supabase/supabase-js";
import Provider from "oidc-provider";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";

import { PASSWORD, signedUp } from "../harness/accounts.ts";
import { Portico, portico as command, projectFolder } from "../harness/portico.ts";

interface Key {
  id: string;
  algorithm: string;
  state: "standby" | "in_use" | "previously_used" | "revoked" | "verify_only";
  configured: boolean;
}

const NOTES = "create table public.notes (id int primary key, owner text not null); alter table public.notes enable row level security; create policy own on public.notes to authenticated using (owner = (select auth.jwt() ->> 'sub')); insert into public.notes values (1, 'user_1'), (2, 'user_2'); create table public.open (id int); alter table public.open enable row level security; create policy everybody on public.open to authenticated using (true); insert into public.open values (1);";
const files = { "supabase/migrations/20260101000000_notes.sql": NOTES };
const config = "[auth.rate_limit]\nsign_in_sign_ups = 10000\ntoken_refresh = 10000\n";

/** Runs `portico keys` and returns what it prints as JSON. */
async function keys<Printed>(server: { folder: string }, ...args: string[]): Promise<Printed> {
  const { code, stdout, stderr } = await command(["keys", ...args, "--json", "--workdir", server.folder], { cwd: server.folder });
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Printed;
}

const headerOf = (token: string): { alg: string; kid?: string } => JSON.parse(Buffer.from(token.split(".")[0]!, "base64url").toString()) as { alg: string; kid?: string };

const tokenOf = async (client: SupabaseClient): Promise<string> => (await client.auth.getSession()).data.session!.access_token;

/** Signs in until the server signs with the key, which it notices within a moment. */
async function signedInWith(server: Portico, email: string, kid: string, fetch = globalThis.fetch): Promise<SupabaseClient> {
  for (let attempt = 0; attempt < 600; attempt += 1) {
    const client = server.client({ global: { fetch } });
    const { error } = await client.auth.signInWithPassword({ email, password: PASSWORD });
    expect(error).toBeNull();
    if (headerOf(await tokenOf(client)).kid === kid) return client;
  }
  throw new Error(`the server does not sign with ${kid}`);
}

/** Waits until the server rejects a token. */
async function rejected(server: Portico, token: string): Promise<number> {
  for (let attempt = 0; attempt < 600; attempt += 1) {
    const response = await fetch(`${server.url}/auth/v1/user`, { headers: { apikey: server.status.PUBLISHABLE_KEY, authorization: `Bearer ${token}` } });
    if (response.status !== 200) return response.status;
  }
  throw new Error("the token is still accepted");
}

describe("a development server", () => {
  let server: Portico;
  beforeAll(async () => {
    server = await Portico.start({ config, files });
  });
  afterAll(() => server.dispose());

  test("tokens of every algorithm are accepted, and getClaims verifies ES256 and RS256 without a request for the user", async () => {
    const { email, client: first } = await signedUp(server);
    const before = await keys<Key[]>(server, "list");
    expect(before.map(({ algorithm, state, configured }) => [algorithm, state, configured])).toEqual([
      ["ES256", "in_use", true],
      ["HS256", "verify_only", true],
    ]);
    for (const algorithm of ["ES256", "RS256", "EdDSA", "HS256"]) {
      const made = await keys<Key>(server, "create", "--algorithm", algorithm);
      expect(made).toMatchObject({ algorithm, state: "standby", configured: false });
      expect(await keys<object>(server, "rotate")).toMatchObject({ in_use: made.id });
      const requests: string[] = [];
      const client = await signedInWith(server, email, made.id, (input, init) => {
        requests.push(new URL(input instanceof Request ? input.url : input).pathname);
        return fetch(input, init);
      });
      expect(headerOf(await tokenOf(client))).toEqual({ alg: algorithm, kid: made.id, typ: "JWT" });
      expect((await client.from("open").select()).data).toEqual([{ id: 1 }]);
      expect((await client.auth.getUser()).error).toBeNull();
      requests.length = 0;
      if (algorithm === "EdDSA") {
        // The client library knows no other algorithms. `keys create` warns of it.
        await expect(client.auth.getClaims()).rejects.toThrow("Invalid alg claim");
        continue;
      }
      const { data, error } = await client.auth.getClaims();
      expect(error).toBeNull();
      expect(data!.claims["email"]).toBe(email);
      expect(requests).toEqual([algorithm === "HS256" ? "/auth/v1/user" : "/auth/v1/.well-known/jwks.json"]);
    }
    // The first session has seen four rotations.
    expect((await first.auth.getUser()).error).toBeNull();
    expect((await first.auth.refreshSession()).error).toBeNull();
    const published = (await (await fetch(`${server.url}/auth/v1/.well-known/jwks.json`)).json()) as { keys: Record<string, unknown>[] };
    expect(published.keys.map((key) => key["alg"]).sort()).toEqual(["ES256", "ES256", "EdDSA", "RS256"].sort());
    for (const key of published.keys) expect(Object.keys(key)).not.toEqual(expect.arrayContaining(["d"]));
  });

  test("rotations under load fail no request and end no session, and a revoked key ends its tokens", async () => {
    const people = await Promise.all(Array.from({ length: 4 }, () => signedUp(server)));
    const old = await Promise.all(people.map(({ client }) => tokenOf(client)));
    const signingBefore = headerOf(old[0]!).kid!;
    let isRunning = true;
    let calls = 0;
    const failures: unknown[] = [];
    const load = people.map(async ({ client }, person) => {
      for (let turn = 0; isRunning; turn += 1) {
        const { error } = turn % 10 === person ? await client.auth.refreshSession() : turn % 2 === 0 ? await client.from("open").select() : await client.auth.getUser();
        if (error) failures.push(error);
        calls += 1;
      }
    });
    const used: string[] = [];
    for (const algorithm of ["ES256", "RS256", "HS256", "ES256"]) {
      const { id } = await keys<Key>(server, "create", "--algorithm", algorithm);
      await keys(server, "rotate", id);
      used.push(id);
    }
    await signedInWith(server, people[0]!.email, used.at(-1)!);
    isRunning = false;
    await Promise.all(load);
    expect(failures).toEqual([]);
    expect(calls).toBeGreaterThan(50);

    expect(await keys(server, "revoke", signingBefore)).toEqual({ revoked: signingBefore });
    expect(await rejected(server, old[0]!)).toBe(403);
    for (const { client } of people) {
      expect((await client.auth.refreshSession()).error).toBeNull();
      expect((await client.auth.getUser()).error).toBeNull();
    }
    const left = await keys<Key[]>(server, "list");
    expect(left.find(({ id }) => id === signingBefore)?.state).toBe("revoked");
    expect(left.filter(({ state }) => state === "in_use").map(({ id }) => id)).toEqual([used.at(-1)]);
  });

  test("the API keys stay valid, and with the JWT secret the legacy ones become others", async () => {
    const refused = await command(["keys", "revoke", "jwt_secret", "--workdir", server.folder], { cwd: server.folder });
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("anon and service_role API keys");
    await keys(server, "revoke", "jwt_secret", "--with-api-keys");
    const { email } = await signedUp(server);
    let legacy = await server.client({}, server.status.SERVICE_ROLE_KEY).from("open").select();
    for (let attempt = 0; legacy.error === null && attempt < 600; attempt += 1) legacy = await server.client({}, server.status.SERVICE_ROLE_KEY).from("open").select();
    expect(legacy.status).toBe(401);
    const { stdout } = await command(["status", "-o", "json", "--workdir", server.folder], { cwd: server.folder });
    const status = JSON.parse(stdout) as Portico["status"];
    expect(status.SERVICE_ROLE_KEY).not.toBe(server.status.SERVICE_ROLE_KEY);
    for (const key of [status.SERVICE_ROLE_KEY, status.SECRET_KEY]) {
      expect((await server.client({}, key).from("open").select()).data).toEqual([{ id: 1 }]);
    }
    expect((await server.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
  });

  test("a command that cannot be carried out says what to do", async () => {
    const fails = async (...args: string[]): Promise<string> => {
      const { code, stderr, stdout } = await command(["keys", ...args, "--workdir", server.folder], { cwd: server.folder });
      expect({ args, code, stdout }).toEqual({ args, code: 1, stdout: "" });
      return stderr;
    };
    const inUse = (await keys<Key[]>(server, "list")).find(({ state }) => state === "in_use")!.id;
    expect(await fails("revoke", inUse)).toContain("portico keys rotate");
    expect(await fails("rotate")).toContain("portico keys create");
    expect(await fails("rotate", "nonsense")).toContain("portico keys list");
    expect(await fails("list", "--production")).toContain("portico serve");
    const table = await command(["keys", "list", "--workdir", server.folder], { cwd: server.folder });
    expect(table.stdout).toMatch(/Key +│ Algorithm │ State +│ Since/);
    expect(table.stdout).toMatch(new RegExp(`${inUse} │ ES256 +│ in use`));
  });
});

test("keys are managed while the server is stopped, and a configured key file gives way to them", async () => {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const configured = { ...privateKey.export({ format: "jwk" }), kid: "from-the-file", alg: "RS256", use: "sig", key_ops: ["sign", "verify"] };
  const folder = await projectFolder({
    config: `${config}[auth]\nsigning_keys_path = "./signing_keys.json"\n`,
    files: { ...files, "supabase/signing_keys.json": JSON.stringify([configured]) },
  });
  const none = await command(["keys", "list", "--workdir", folder], { cwd: folder });
  expect([none.code, none.stderr]).toEqual([1, expect.stringContaining("portico dev")]);

  let server = await Portico.start({ folder });
  try {
    const { email, client } = await signedUp(server);
    const old = await tokenOf(client);
    expect(headerOf(old)).toMatchObject({ alg: "RS256", kid: "from-the-file" });
    expect((await client.auth.getClaims()).error).toBeNull();
    await server.stop();
    const { id } = await keys<Key>({ folder }, "create");
    await keys({ folder }, "rotate");
    expect((await keys<Key[]>({ folder }, "list")).map((key) => [key.id, key.state])).toEqual([
      ["from-the-file", "previously_used"],
      ["jwt_secret", "verify_only"],
      [id, "in_use"],
    ]);
    server = await Portico.start({ folder });
    const again = server.client();
    expect((await again.auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
    expect(headerOf(await tokenOf(again)).kid).toBe(id);
    expect((await again.auth.getUser(old)).error).toBeNull();
  } finally {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
});

test("a production server rotates away from its secret without ending a session", async () => {
  const server = await Portico.serve({ config, files });
  try {
    const before = await keys<Key[]>(server, "list", "--production");
    expect(before).toMatchObject([{ id: "jwt_secret", algorithm: "HS256", state: "in_use", configured: true }]);
    const { email, client } = await signedUp(server);
    expect(headerOf(await tokenOf(client))).toEqual({ alg: "HS256", typ: "JWT" });
    const { id } = await keys<Key>(server, "create", "--production");
    await keys(server, "rotate", "--production");
    const next = await signedInWith(server, email, id);
    for (const each of [client, next]) expect((await each.auth.getUser()).error).toBeNull();
    expect((await next.auth.getClaims()).data?.header).toMatchObject({ alg: "ES256", kid: id });
  } finally {
    await server.dispose();
  }
});

describe("a third party", () => {
  const kid = "issuer-key";
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const servers: Server[] = [];
  afterAll(() => {
    for (const server of servers) {
      server.closeAllConnections();
      server.close();
    }
  });

  /** Starts an OpenID provider on this machine that names itself `issuer`, or by its address. */
  async function issuerAt(issuer?: string): Promise<{ address: string; issuer: string }> {
    const server = createServer();
    servers.push(server);
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const provider = new Provider(issuer ?? address, {
      clients: [{ client_id: "app", client_secret: "secret", redirect_uris: ["http://127.0.0.1:3000/"] }],
      jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" }] },
      cookies: { keys: ["a key for the cookies of this test"] },
    });
    const handle = provider.callback();
    server.on("request", (request, response) => void handle(request, response));
    return { address, issuer: issuer ?? address };
  }

  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = (claims: object, key: KeyObject = createPrivateKey(privateKey.export({ format: "pem", type: "pkcs8" }))): string => {
    const now = Math.floor(Date.now() / 1000);
    const text = `${part({ alg: "RS256", kid, typ: "JWT" })}.${part({ iat: now, exp: now + 600, ...claims })}`;
    return `${text}.${sign("RSA-SHA256", Buffer.from(text), key).toString("base64url")}`;
  };

  const providers = {
    firebase: {
      issuer: "https://securetoken.google.com/shop-1",
      config: 'project_id = "shop-1"',
      claims: { aud: "shop-1", user_id: "user_1", firebase: { sign_in_provider: "google.com" } },
      others: [{ aud: "shop-2" }],
    },
    auth0: { issuer: "https://shop.eu.auth0.com/", config: 'tenant = "shop"\ntenant_region = "eu"', claims: { aud: ["https://api", "https://shop.eu.auth0.com/userinfo"] }, others: [] },
    aws_cognito: { issuer: "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_AbC", config: 'user_pool_id = "eu-west-1_AbC"\nuser_pool_region = "eu-west-1"', claims: { client_id: "app", token_use: "access" }, others: [] },
    clerk: { issuer: "https://shop.clerk.accounts.dev", config: 'domain = "shop.clerk.accounts.dev"', claims: { azp: "http://localhost:3000", v: 2 }, others: [] },
    workos: { issuer: undefined, config: "", claims: { sid: "session_1" }, others: [] },
  };

  test.each(Object.entries(providers))("of %s reads its users' rows", async (name, provider) => {
    const { address, issuer } = await issuerAt(provider.issuer);
    const own = name === "workos" ? `issuer_url = "${address}"` : provider.config;
    const portico_toml = name === "workos" ? "" : `[auth]\nthird_party_discovery_url = "${address}/.well-known/openid-configuration"\n`;
    const server = await Portico.start({
      config: `${config}[auth.third_party.${name}]\nenabled = true\n${own}\n`,
      files: { ...files, "supabase/portico.toml": portico_toml },
    });
    try {
      const as = (token: string): SupabaseClient =>
        // eslint-disable-next-line @typescript-eslint/no-unsafe-return -- without generated types the client's tables are `any`
        createClient(server.url, server.status.PUBLISHABLE_KEY, { accessToken: () => Promise.resolve(token), realtime: { transport: WebSocket as unknown as typeof globalThis.WebSocket } });
      const claims = { iss: issuer, sub: "user_1", role: "authenticated", ...provider.claims };
      expect((await as(signed(claims)).from("notes").select("id")).data).toEqual([{ id: 1 }]);
      // A token without the claim is a visitor's.
      expect((await as(signed({ ...claims, role: undefined })).from("notes").select("id")).data).toEqual([]);
      const stranger = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
      for (const token of [signed(claims, stranger), signed({ ...claims, iss: "https://other.example.com" }), signed({ ...claims, exp: 1 }), ...provider.others.map((other) => signed({ ...claims, ...other }))]) {
        expect((await as(token).from("notes").select("id")).status).toBe(401);
      }
      // Its users have no account here.
      const account = await fetch(`${server.url}/auth/v1/user`, { headers: { apikey: server.status.PUBLISHABLE_KEY, authorization: `Bearer ${signed(claims)}` } });
      expect([account.status, ((await account.json()) as { error_code: string }).error_code]).toEqual([403, "bad_jwt"]);
      expect(server.log).not.toContain("third_party] has no effect");
    } finally {
      await server.dispose();
    }
  });

  test("on this machine is for development only", async () => {
    const folder = await projectFolder({ config: '[auth.third_party.workos]\nenabled = true\nissuer_url = "http://127.0.0.1:9"\n' });
    const { code, stderr } = await command(["serve", "--check", "--workdir", folder], { cwd: folder, env: { PORTICO_SERVER_PUBLIC_URL: "https://accounts.example.com" } });
    expect([code, stderr]).toEqual([1, expect.stringContaining("[auth.third_party]")]);
    await rm(folder, { recursive: true, force: true });
  });
});
