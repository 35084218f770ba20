/** The parts of an access token that the pages read. The server alone decides what a token is worth. */
export interface AccessClaims {
  sessionId: string | null;
  /** How this session was opened, oldest first. */
  methods: { method: string; at: Date }[];
}

export function readAccessToken(token: string): AccessClaims {
  const payload = decodePayload(token);
  const amr: unknown[] = Array.isArray(payload.amr) ? payload.amr : [];
  return {
    sessionId: typeof payload.session_id === "string" ? payload.session_id : null,
    methods: amr.flatMap((entry) => {
      if (typeof entry !== "object" || entry === null) return [];
      if (!("method" in entry) || typeof entry.method !== "string") return [];
      if (!("timestamp" in entry) || typeof entry.timestamp !== "number") return [];
      return [{ method: entry.method, at: new Date(entry.timestamp * 1000) }];
    }),
  };
}

function decodePayload(token: string): Record<string, unknown> {
  try {
    const part = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(part), (character) => character.charCodeAt(0));
    const payload: unknown = JSON.parse(new TextDecoder().decode(bytes));
    // An object's fields are all `unknown` until they are read, so this cast promises nothing.
    return typeof payload === "object" && payload !== null ? (payload as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
