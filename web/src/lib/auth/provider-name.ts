import * as m from "../../paraglide/messages";

/** Brands, which are the same in every language. */
const providerNames: Record<string, string> = {
  github: "GitHub",
  gitlab: "GitLab",
  linkedin: "LinkedIn",
  linkedin_oidc: "LinkedIn",
  slack_oidc: "Slack",
  azure: "Microsoft",
  workos: "WorkOS",
  twitter: "X",
  x: "X",
};

/** Returns the name of a provider as users know it. */
export function providerName(provider: string): string {
  if (provider === "email") return m.provider_email();
  const id = provider.replace("custom:", "");
  return providerNames[provider] ?? id.charAt(0).toUpperCase() + id.slice(1);
}
