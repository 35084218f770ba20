import { queryOptions, useQuery } from "@tanstack/react-query";
import type { Config } from "../config";
import { useConfig } from "../config-context";
import { z } from "../zod";

const settingsSchema = z.object({
  external: z._default(z.record(z.string(), z.boolean()), {}),
  disable_signup: z._default(z.boolean(), false),
  passkeys_enabled: z._default(z.boolean(), false),
});

/** The sign-in methods that the server offers. */
export interface SignInMethods {
  google: boolean;
  email: boolean;
  phone: boolean;
  passkeys: boolean;
  /** The names of the other providers, as the server writes them. */
  otherProviders: string[];
  allowsSignUp: boolean;
}

const ownMethods = new Set(["google", "email", "phone", "anonymous_users"]);

const signInMethodsQuery = (config: Config) =>
  queryOptions({
    queryKey: ["auth", "settings"],
    staleTime: 5 * 60_000,
    queryFn: async ({ signal }): Promise<SignInMethods> => {
      const response = await fetch(`${config.url}/auth/v1/settings`, { headers: { apikey: config.anonKey }, signal });
      if (!response.ok) throw new Error(`The settings could not be loaded (${response.status})`);
      const { external, disable_signup, passkeys_enabled } = settingsSchema.parse(await response.json());
      return {
        google: external.google ?? false,
        email: external.email ?? true,
        phone: external.phone ?? false,
        passkeys: passkeys_enabled,
        otherProviders: Object.keys(external).filter((name) => external[name] && !ownMethods.has(name)),
        allowsSignUp: !disable_signup,
      };
    },
  });

/** Offered without the server's settings: each method still reports its own failure. Text messages are the exception. */
const defaultMethods: SignInMethods = {
  google: true,
  email: true,
  phone: false,
  passkeys: false,
  otherProviders: [],
  allowsSignUp: true,
};

/** Returns the sign-in methods that the server offers, and the default ones without its response. */
export function useSignInMethods(): { methods: SignInMethods; isPending: boolean } {
  const { data, isPending } = useQuery(signInMethodsQuery(useConfig()));
  return { methods: data ?? defaultMethods, isPending };
}
