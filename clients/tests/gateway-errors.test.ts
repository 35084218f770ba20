// The gateway's responses to requests with a wrong path, or from a wrong origin.
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { Portico } from "../harness/portico.ts";

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: '[auth]\nsite_url = "https://app.example.com"\nadditional_redirect_urls = ["https://shop.example.com/**"]\n' });
});
afterAll(() => portico.dispose());

describe("a body sent to an unknown path", () => {
  const kinds: [string, () => { body: BodyInit; duplex?: "half" }][] = [
    ["a form with a file", () => {
      const form = new FormData();
      form.append("file", new Blob([new Uint8Array(8 * 1024 * 1024)]), "file.bin");
      return { body: form };
    }],
    ["a stream", () => {
      let left = 64;
      const body = new ReadableStream<Uint8Array>({
        pull: (controller) => {
          if (left-- > 0) controller.enqueue(new Uint8Array(512 * 1024));
          else controller.close();
        },
      });
      return { body, duplex: "half" };
    }],
  ];
  test.each(kinds)("%s: the client reads the 404", async (_, init) => {
    for (const path of ["/analytics/v1/logs", "/nowhere/v9"]) {
      const response = await fetch(`${portico.url}${path}`, { method: "POST", ...init() });
      expect(response.status).toBe(404);
      expect(await response.json()).toEqual({ message: "no Route matched with those values" });
    }
  });
});

describe("a page of another website in the developer's browser", () => {
  const statusOf = async (path: string, headers: Record<string, string>): Promise<number> => {
    const response = await fetch(`${portico.url}${path}`, { headers });
    await response.arrayBuffer();
    return response.status;
  };

  test("cannot use the published secret keys", async () => {
    const { SECRET_KEY: secret, SERVICE_ROLE_KEY: legacy, ANON_KEY: anon } = portico.status;
    const keys: Record<string, string>[] = [{ apikey: secret }, { apikey: legacy }, { apikey: anon, authorization: `Bearer ${legacy}` }];
    for (const key of keys) {
      for (const [origin, status] of [
        [undefined, 200],
        ["http://localhost:5173", 200],
        ["https://app.example.com", 200],
        ["https://shop.example.com", 200],
        ["https://evil.example", 403],
        ["null", 403],
      ] as const) {
        const headers: Record<string, string> = origin === undefined ? key : { ...key, origin };
        expect([origin, await statusOf("/rest/v1/", headers)]).toEqual([origin, status]);
      }
    }
    expect(await statusOf("/auth/v1/settings", { apikey: anon, origin: "https://evil.example" })).toBe(200);
  });

  test("cannot sign in at the emulated provider", async () => {
    const discovery = "/portico/google/.well-known/openid-configuration";
    const response = await fetch(`${portico.url}${discovery}`);
    expect([response.status, response.headers.get("access-control-allow-origin")]).toEqual([200, null]);
    expect(await statusOf(discovery, { origin: "https://evil.example" })).toBe(403);
    expect(await statusOf(discovery, { origin: "https://shop.example.com" })).toBe(200);
    const decision = { method: "POST", headers: { origin: "null" }, body: new URLSearchParams({ action: "add" }) };
    expect((await fetch(`${portico.url}/portico/google/authorize/decision`, decision)).status).toBe(403);
  });
});

test("redirect targets within the server's own services are ignored", async () => {
  const target = async (to: string): Promise<string | null> => {
    const query = new URLSearchParams({ token: "x", type: "signup", redirect_to: to });
    const response = await fetch(`${portico.url}/auth/v1/verify?${query.toString()}`, { redirect: "manual" });
    return response.headers.get("location");
  };
  expect(await target("https://shop.example.com/welcome")).toMatch(/^https:\/\/shop\.example\.com\/welcome/);
  for (const path of ["/auth/v1/authorize?provider=google", "/rest/v1/rpc/f", "/portico/google/authorize"]) {
    for (const origin of [portico.url, portico.url.replace("127.0.0.1", "localhost")]) {
      expect(await target(`${origin}${path}`)).toMatch(/^https:\/\/app\.example\.com/);
    }
  }
});
