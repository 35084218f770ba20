import { queryOptions } from "@tanstack/react-query";
import type { Config } from "../config";
import { z } from "../zod";

const settingsSchema = z.object({
  external: z._default(z.record(z.string(), z.boolean()), {}),
  disable_signup: z._default(z.boolean(), false),
});

/** The ways in that the server offers. */
export interface SignInMethods {
  google: boolean;
  email: boolean;
  phone: boolean;
  /** Other providers, by their names on the wire. */
  others: string[];
  allowsSignUp: boolean;
}

const notProviders = new Set(["google", "email", "phone", "anonymous_users"]);

export const methodsQuery = (config: Config) =>
  queryOptions({
    queryKey: ["auth", "settings"],
    staleTime: 5 * 60_000,
    queryFn: async ({ signal }): Promise<SignInMethods> => {
      const response = await fetch(`${config.url}/auth/v1/settings`, { headers: { apikey: config.anonKey }, signal });
      if (!response.ok) throw new Error(`The settings could not be loaded (${response.status})`);
      const settings = settingsSchema.parse(await response.json());
      return {
        google: settings.external.google ?? false,
        email: settings.external.email ?? true,
        phone: settings.external.phone ?? false,
        others: Object.keys(settings.external).filter((name) => settings.external[name] && !notProviders.has(name)),
        allowsSignUp: !settings.disable_signup,
      };
    },
  });

/** What we offer when the server does not say: each way still answers for itself. Text messages are the exception. */
export const assumedMethods: SignInMethods = { google: true, email: true, phone: false, others: [], allowsSignUp: true };

const names: Record<string, string> = {
  github: "GitHub",
  gitlab: "GitLab",
  linkedin: "LinkedIn",
  linkedin_oidc: "LinkedIn",
  slack_oidc: "Slack",
  azure: "Microsoft",
  workos: "WorkOS",
  twitter: "X",
  x: "X",
  email: "E-mail",
};

export function providerName(provider: string): string {
  return names[provider] ?? provider.charAt(0).toUpperCase() + provider.slice(1);
}
