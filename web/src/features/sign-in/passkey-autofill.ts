import type { AuthClient } from "../../lib/auth/deferred-client";

/** A request is renewed this long before the server forgets its challenge. */
const marginMs = 10_000;
/** Ten requests in five minutes, of the thirty that the server permits by default. */
const leastRenewalMs = 30_000;

/** The functions that some of the supported browsers lack. */
type RecentCredential = Partial<
  Pick<typeof PublicKeyCredential, "isConditionalMediationAvailable" | "parseRequestOptionsFromJSON">
>;

/**
 * Lets the browser offer passkeys among the suggestions of a field with
 * `autocomplete="username webauthn"`, and signs in with the chosen one. One that the server rejects
 * is reported, and the field offers passkeys again. Returns false when none was accepted before
 * `signal` ended it, or where that is not possible.
 */
export async function signInFromAutofill(
  client: AuthClient,
  signal: AbortSignal,
  onRejected: (error: unknown) => void,
): Promise<boolean> {
  const recent: RecentCredential = PublicKeyCredential;
  if (recent.parseRequestOptionsFromJSON === undefined) return false;
  if ((await recent.isConditionalMediationAvailable?.()) !== true) return false;
  const isEnded = () => signal.aborted;
  for (;;) {
    const { data, error } = await client.passkey.startAuthentication();
    // The button is still there, and reports why it does not work.
    if (error || isEnded()) return false;
    // The client's type of the options is the one of the standard, in its own words.
    const options = data.options as PublicKeyCredentialRequestOptionsJSON;
    // By the duration, not by the time of expiry: the clock of this device may be wrong.
    const renewal = AbortSignal.timeout(Math.max((options.timeout ?? 0) - marginMs, leastRenewalMs));
    let credential: Credential | null;
    try {
      credential = await navigator.credentials.get({
        publicKey: recent.parseRequestOptionsFromJSON(options),
        mediation: "conditional",
        signal: AbortSignal.any([signal, renewal]),
      });
    } catch {
      if (renewal.aborted && !isEnded()) continue;
      return false;
    }
    if (!(credential instanceof PublicKeyCredential)) return false;
    // The JSON of a credential of this request is the client's type for it.
    const answer = credential.toJSON() as Parameters<AuthClient["passkey"]["verifyAuthentication"]>[0]["credential"];
    const verified = await client.passkey.verifyAuthentication({ challengeId: data.challenge_id, credential: answer });
    if (!verified.error) return true;
    if (isEnded()) return false;
    onRejected(verified.error);
  }
}
