import { act, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { openAuth } from "../../lib/auth/client";
import { config, fakeServer, session } from "../../testing/fake-server";
import { renderApp } from "../../testing/render-app";
import { signInFromAutofill } from "./passkey-autofill";

const patient = { timeout: 20_000 };

class FakeCredential {
  static isConditionalMediationAvailable = () => Promise.resolve(true);
  static parseRequestOptionsFromJSON = (options: unknown) => options;
  constructor(readonly id: string) {}
  toJSON() {
    return { id: this.id };
  }
}

/** The browser's open offers, in order: the challenge, and the choice of a passkey. */
let offers: { challenge: string; choose: (id: string) => void }[];
/** The renewals of the requests, in order. */
let renewals: { afterMs: number; begin: () => void }[];

beforeEach(() => {
  [offers, renewals] = [[], []];
  vi.stubGlobal("PublicKeyCredential", FakeCredential);
  vi.spyOn(AbortSignal, "timeout").mockImplementation((afterMs) => {
    const controller = new AbortController();
    renewals.push({ afterMs, begin: () => controller.abort() });
    return controller.signal;
  });
  const get = ({ publicKey, signal }: { publicKey: { challenge: string }; signal: AbortSignal }) =>
    new Promise((resolve, reject) => {
      offers.push({ challenge: publicKey.challenge, choose: (id) => resolve(new FakeCredential(id)) });
      signal.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
    });
  Object.defineProperty(navigator, "credentials", { configurable: true, value: { get } });
});
afterEach(() => {
  Reflect.deleteProperty(navigator, "credentials");
});

/** A server with a new challenge for each request, which accepts one passkey. */
function passkeyServer({ timeout = 300_000, expiresAt = 2_000_000_000 } = {}) {
  let count = 0;
  return fakeServer({
    "GET /auth/v1/settings": { body: { external: { email: true }, passkeys_enabled: true } },
    "POST /auth/v1/passkeys/authentication/options": () => {
      const challenge = `challenge-${++count}`;
      return { body: { challenge_id: challenge, options: { challenge, timeout }, expires_at: expiresAt } };
    },
    "POST /auth/v1/passkeys/authentication/verify": ({ body }) =>
      (body.credential as { id: string }).id === "known"
        ? { body: session() }
        : { status: 400, body: { code: "webauthn_verification_failed", message: "no" } },
  });
}

test("a suggestion that the server rejects is reported, and passkeys are offered again", async () => {
  const server = passkeyServer();
  renderApp("/sign-in?next=/app/files");
  await waitFor(() => expect(offers).toHaveLength(1), patient);
  act(() => offers[0]?.choose("removed"));
  expect(await screen.findByRole("alert", {}, patient)).toHaveTextContent(/passkey/);
  await waitFor(() => expect(offers).toHaveLength(2), patient);
  expect(offers[1]?.challenge).toBe("challenge-2");
  act(() => offers[1]?.choose("known"));
  await waitFor(() => expect(window.location.pathname).toBe("/app/files"), patient);
  const verified = server.seen.filter(({ path }) => path.endsWith("/authentication/verify"));
  expect(verified.map(({ body }) => body.challenge_id)).toEqual(["challenge-1", "challenge-2"]);
});

describe("a request is renewed", () => {
  const begin = () => void signInFromAutofill(openAuth(config).client, new AbortController().signal, () => undefined);

  test.each([
    // A clock that is years late, and one that is years early.
    [4_000_000_000, 300_000, 290_000],
    [1_000_000_000, 300_000, 290_000],
    // Ten requests in five minutes at most.
    [2_000_000_000, 5_000, 30_000],
  ])("in the time of the server's duration, whatever the clock says: expiry %i", async (expiresAt, timeout, afterMs) => {
    passkeyServer({ expiresAt, timeout });
    begin();
    await waitFor(() => expect(offers).toHaveLength(1), patient);
    expect(renewals.map((renewal) => renewal.afterMs)).toEqual([afterMs]);
    renewals[0]?.begin();
    await waitFor(() => expect(offers.map(({ challenge }) => challenge)).toEqual(["challenge-1", "challenge-2"]), patient);
  });
});
