/** What the server tells the page about itself: `GET /portico/config.json`. */
export interface Config {
  /** Origin of the API. */
  url: string;
  /** The anonymous public key that calls carry while nobody is signed in. */
  anonKey: string;
  /** Whether a development server answers. */
  development: boolean;
  brand: { name: string; accent: string | null; mark: string | null };
  analytics: { adapter: "builtin" | "posthog" | "ga4" | "none"; key: string | null; host: string | null };
  accounts: {
    /** Whether people may add further ways in to their account, and remove them. */
    manualLinking: boolean;
    /** Which mails about another address have to be answered: the new address's, either, or both. */
    emailChange: "new" | "either" | "both";
    /** How many digits a code has that comes by mail, and by text message. */
    codeLength: { email: number; phone: number };
  };
  /** Where captured messages are read, in development. */
  mailbox: string | null;
}

export async function loadConfig(): Promise<Config> {
  // The same mode and credentials as the preload in index.html, so that its answer is used.
  const response = await fetch("/portico/config.json", { credentials: "same-origin" });
  if (!response.ok) throw new Error(`The configuration could not be loaded (${response.status})`);
  return readConfig(await response.json());
}

/** Reads the configuration with the defaults for whatever is absent. Only the key has no default. */
export function readConfig(value: unknown): Config {
  const config = record(value);
  const brand = record(config.brand);
  const analytics = record(config.analytics);
  const accounts = record(config.accounts);
  const codeLength = record(accounts.codeLength);
  const anonKey = text(config.anonKey);
  if (anonKey === null) throw new Error("The configuration has no anonKey");
  const adapter = analytics.adapter;
  return {
    url: text(config.url) ?? window.location.origin,
    anonKey,
    development: config.development === true,
    brand: { name: text(brand.name) ?? "Portico", accent: text(brand.accent), mark: text(brand.mark) },
    analytics: {
      adapter: adapter === "posthog" || adapter === "ga4" || adapter === "none" ? adapter : "builtin",
      key: text(analytics.key),
      host: text(analytics.host),
    },
    accounts: {
      manualLinking: accounts.manualLinking === true,
      emailChange: accounts.emailChange === "new" || accounts.emailChange === "either" ? accounts.emailChange : "both",
      codeLength: { email: digits(codeLength.email), phone: digits(codeLength.phone) },
    },
    mailbox: text(config.mailbox),
  };
}

function record(value: unknown): Record<string, unknown> {
  // An object's fields are all `unknown` until they are read, so this cast promises nothing.
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

/** A code's length; the server knows those of six to ten digits. */
function digits(value: unknown): number {
  return typeof value === "number" && Number.isInteger(value) && value >= 6 && value <= 10 ? value : 6;
}

function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}
