import { recordOf, textOf } from "./json";

/** The server's configuration of the pages: `GET /portico/config.json`. */
export interface Config {
  /** Origin of the API. */
  url: string;
  /** The anonymous public key, sent with every call that has no access token. */
  anonKey: string;
  /** True for a development server. */
  development: boolean;
  brand: { name: string; accent: BrandAccent | null; mark: string | null };
  analytics: { adapter: "builtin" | "posthog" | "ga4" | "none"; key: string | null; host: string | null };
  accounts: {
    /** Users may add sign-in methods to their account and remove them. */
    manualLinking: boolean;
    /** The emails of an email change whose link has to be opened. */
    emailChange: "new" | "either" | "both";
    /** The number of digits of a code sent by email, and by text message. */
    codeLength: { email: CodeLength; phone: CodeLength; factor: CodeLength };
    /** The second factors that users may add. */
    factors: { totp: boolean; phone: boolean; securityKey: boolean };
    password: PasswordRules;
  };
  /** The pictures of accounts: the server keeps them, and renders them in the needed size. */
  avatars: { kept: boolean; rendered: boolean };
  /** The server has the realtime service. */
  realtime: boolean;
  /** The address of the captured messages, in development. */
  mailbox: string | null;
  /**
   * The settings of the account service when the server started, in the form of its own endpoint.
   */
  settings: unknown;
}

/**
 * The colours that follow from the brand's accent: of fills and the text on them, and of text on
 * light and on dark.
 */
export interface BrandAccent {
  fill: string;
  onFill: string;
  light: string;
  dark: string;
}

/** The server's rules for a new password. */
export interface PasswordRules {
  minLength: number;
  /** Each is a class of characters of which one is needed. */
  requires: CharacterClass[];
}

export type CharacterClass = "lower" | "upper" | "letters" | "digits" | "symbols";

const characterClasses: CharacterClass[] = ["lower", "upper", "letters", "digits", "symbols"];

/** The number of digits of a code. The server has no other lengths. */
export type CodeLength = 6 | 7 | 8 | 9 | 10;

const codeLengths: CodeLength[] = [6, 7, 8, 9, 10];

/**
 * Returns the configuration that the server has put into the page; `null` in a page without one.
 */
export function embeddedConfig(): Config | null {
  const element = document.getElementById("config");
  return element ? readConfig(JSON.parse(element.textContent)) : null;
}

export async function loadConfig(): Promise<Config> {
  const response = await fetch("/portico/config.json", { credentials: "same-origin" });
  if (!response.ok) throw new Error(`No configuration (${response.status})`);
  return readConfig(await response.json());
}

/** Reads the configuration. Every absent value but the key has a default. */
export function readConfig(value: unknown): Config {
  const config = recordOf(value);
  const brand = recordOf(config.brand);
  const analytics = recordOf(config.analytics);
  const accounts = recordOf(config.accounts);
  const avatars = recordOf(config.avatars);
  const codeLength = recordOf(accounts.codeLength);
  const factors = recordOf(accounts.factors);
  const anonKey = textOf(config.anonKey);
  if (anonKey === null) throw new Error("No anonKey");
  const adapter = analytics.adapter;
  return {
    url: textOf(config.url) ?? window.location.origin,
    anonKey,
    development: config.development === true,
    brand: { name: textOf(brand.name) ?? "Portico", accent: accentOf(brand.accent), mark: textOf(brand.mark) },
    analytics: {
      adapter: adapter === "posthog" || adapter === "ga4" || adapter === "none" ? adapter : "builtin",
      key: textOf(analytics.key),
      host: textOf(analytics.host),
    },
    accounts: {
      manualLinking: accounts.manualLinking === true,
      emailChange: accounts.emailChange === "new" || accounts.emailChange === "either" ? accounts.emailChange : "both",
      codeLength: {
        email: codeLengthOf(codeLength.email),
        phone: codeLengthOf(codeLength.phone),
        factor: codeLengthOf(codeLength.factor),
      },
      factors: { totp: factors.totp === true, phone: factors.phone === true, securityKey: factors.securityKey === true },
      password: passwordRulesOf(accounts.password),
    },
    avatars: { kept: avatars.kept === true, rendered: avatars.rendered === true },
    realtime: config.realtime === true,
    mailbox: textOf(config.mailbox),
    settings: config.settings,
  };
}

function accentOf(value: unknown): BrandAccent | null {
  const accent = recordOf(value);
  const [fill, onFill, light, dark] = [accent.fill, accent.onFill, accent.light, accent.dark].map(textOf);
  return fill && onFill && light && dark ? { fill, onFill, light, dark } : null;
}

function passwordRulesOf(value: unknown): PasswordRules {
  const { minLength, requires } = recordOf(value);
  const names: unknown[] = Array.isArray(requires) ? requires : [];
  return {
    minLength: typeof minLength === "number" ? minLength : 6,
    requires: characterClasses.filter((name) => names.includes(name)),
  };
}

function codeLengthOf(value: unknown): CodeLength {
  return codeLengths.find((length) => length === value) ?? 6;
}
