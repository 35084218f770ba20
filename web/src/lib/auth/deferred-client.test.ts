import { GoTrueClient } from "@supabase/auth-js";
import { expect, test, vi } from "vitest";
import { config, fakeServer, session } from "../../testing/fake-server";
import { deferClient } from "./deferred-client";

const credentials = { email: "ada@portico.test", password: "correct horse" };
const open = () => Promise.resolve(new GoTrueClient({ url: `${config.url}/auth/v1`, autoRefreshToken: false, persistSession: false }));

test("a call before the client is loaded runs once it is", async () => {
  const server = fakeServer({ "POST /auth/v1/token": { body: session() } });
  const opening = vi.fn(open);
  const { client, start } = deferClient(opening);
  expect(opening).not.toHaveBeenCalled();
  const { data, error } = await client.signInWithPassword(credentials);
  expect(error).toBeNull();
  expect(data.user?.email).toBe("ada@portico.test");
  expect(server.paths()).toContain("POST /auth/v1/token?grant_type=password");
  await start();
  await client.getSession();
  expect(opening).toHaveBeenCalledTimes(1);
});

test("a client that cannot be loaded is reported like an unreachable server, and loaded again", async () => {
  vi.useFakeTimers();
  try {
    fakeServer({ "POST /auth/v1/token": { body: session() } });
    const opening = vi.fn(open).mockRejectedValueOnce(new TypeError("Failed to fetch")).mockRejectedValueOnce(new TypeError("Failed to fetch"));
    const { client, start } = deferClient(opening);
    const { error } = await client.signInWithPassword(credentials);
    expect(error).toMatchObject({ name: "AuthRetryableFetchError" });
    const started = start();
    await vi.advanceTimersByTimeAsync(3000);
    await started;
    expect(opening).toHaveBeenCalledTimes(3);
  } finally {
    vi.useRealTimers();
  }
});
