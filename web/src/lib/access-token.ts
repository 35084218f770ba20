import { parseRecord, recordOf } from "./json";

/** The parts of an access token that the pages read. Only the server verifies it. */
export interface AccessClaims {
  sessionId: string | null;
  /** True when the session was confirmed with a second factor. */
  hasSecondFactor: boolean;
  /** The methods that opened the session, oldest first. */
  methods: { method: string; at: Date }[];
}

export function readAccessToken(token: string): AccessClaims {
  const payload = decodePayload(token);
  const amr: unknown[] = Array.isArray(payload.amr) ? payload.amr : [];
  return {
    hasSecondFactor: payload.aal === "aal2" || payload.aal === "aal3",
    sessionId: typeof payload.session_id === "string" ? payload.session_id : null,
    methods: amr.flatMap((entry) => {
      const { method, timestamp } = recordOf(entry);
      if (typeof method !== "string" || typeof timestamp !== "number") return [];
      return [{ method, at: new Date(timestamp * 1000) }];
    }),
  };
}

function decodePayload(token: string): Record<string, unknown> {
  try {
    const part = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(part), (character) => character.charCodeAt(0));
    return parseRecord(new TextDecoder().decode(bytes));
  } catch {
    return {};
  }
}
