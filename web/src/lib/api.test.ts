import { expect, test } from "vitest";
import { openAuth } from "./auth/client";
import { config, fakeServer, session, storeSession } from "../testing/fake-server";
import { ApiError, openApi } from "./api";
import { openBackend } from "./backend";
import { z } from "./zod";

test("calls carry the anonymous key, and the access token of a session", async () => {
  const server = fakeServer({ "GET /rest/v1/notes": { body: [] } });
  const visitor = openAuth(config);
  await openApi(config, visitor.client).get("/auth/v1/sessions", z.array(z.unknown()));
  await (await openBackend(config, visitor.client)).from("notes").select();

  const signedIn = session();
  storeSession(signedIn);
  const person = openAuth(config);
  await openApi(config, person.client).get("/auth/v1/sessions", z.array(z.unknown()));
  await (await openBackend(config, person.client)).from("notes").select();

  const carried = server.seen.map(({ headers }) => [headers.get("apikey"), headers.get("authorization")]);
  expect(carried).toEqual([
    ["anon-key", "Bearer anon-key"],
    ["anon-key", "Bearer anon-key"],
    ["anon-key", `Bearer ${signedIn.access_token}`],
    ["anon-key", `Bearer ${signedIn.access_token}`],
  ]);
});

test("an error response keeps its code", async () => {
  fakeServer({ "GET /auth/v1/sessions": { status: 403, body: { code: "session_not_found", message: "gone" } } });
  const { client } = openAuth(config);
  const failure: unknown = await openApi(config, client)
    .get("/auth/v1/sessions", z.array(z.unknown()))
    .catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(ApiError);
  expect(failure).toMatchObject({ status: 403, code: "session_not_found", message: "gone" });
});
