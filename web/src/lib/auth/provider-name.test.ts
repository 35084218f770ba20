import { expect, test } from "vitest";
import { providerName } from "./provider-name";

test("a provider has the name that users know, and one that an operator adds has its own", () => {
  expect(["google", "azure", "linkedin_oidc", "workos", "twitter", "spotify", "email"].map(providerName)).toEqual([
    "Google",
    "Microsoft",
    "LinkedIn",
    "WorkOS",
    "X",
    "Spotify",
    "Email",
  ]);
  expect(providerName("custom:acme")).toBe("Acme");
});
