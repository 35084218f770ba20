import { renderHook } from "@testing-library/react";
import { describe, expect, test } from "vitest";
import { useRedirect } from "./navigation";
import { ShownAddressContext } from "./shown-address";

function redirectFrom(path: string) {
  return renderHook(useRedirect, {
    wrapper: ({ children }) => (
      <ShownAddressContext value={{ path, search: "", onShown: () => undefined }}>{children}</ShownAddressContext>
    ),
  }).result.current;
}

describe("a redirect", () => {
  test("replaces its page", () => {
    window.history.replaceState(null, "", "/app?tab=files");
    const entries = window.history.length;
    redirectFrom("/app")("/sign-in");
    expect(window.location.pathname).toBe("/sign-in");
    expect(window.history.length).toBe(entries);
  });

  test("does not replace a page that the user has gone to meanwhile", () => {
    window.history.replaceState(null, "", "/verify");
    redirectFrom("/app")("/sign-in");
    expect(window.location.pathname).toBe("/verify");
  });
});
