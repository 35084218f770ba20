import { queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
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
      return methodsOf(settingsSchema.parse(await response.json()));
    },
  });

function methodsOf({ external, disable_signup, passkeys_enabled }: z.infer<typeof settingsSchema>): SignInMethods {
  return {
    google: external.google ?? false,
    email: external.email ?? true,
    phone: external.phone ?? false,
    passkeys: passkeys_enabled,
    otherProviders: Object.keys(external).filter((name) => external[name] && !ownMethods.has(name)),
    allowsSignUp: !disable_signup,
  };
}

/**
 * Offered without the server's settings: each method still reports its own failure. Text messages
 * are the exception.
 */
const defaultMethods: SignInMethods = {
  google: true,
  email: true,
  phone: false,
  passkeys: false,
  otherProviders: [],
  allowsSignUp: true,
};

/**
 * Returns the sign-in methods that the server offers; those of the page's configuration until the
 * response is there, and the default ones without either.
 */
export function useSignInMethods(): { methods: SignInMethods; isPending: boolean } {
  const config = useConfig();
  const { data, isPending } = useQuery(signInMethodsQuery(config));
  const configured = useMemo(() => {
    const settings = settingsSchema.safeParse(config.settings);
    return settings.success ? methodsOf(settings.data) : null;
  }, [config.settings]);
  return { methods: data ?? configured ?? defaultMethods, isPending: isPending && configured === null };
}
