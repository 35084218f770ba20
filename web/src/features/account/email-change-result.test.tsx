import type { User } from "@supabase/supabase-js";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { AuthContext, type AuthState } from "../../lib/auth/auth-context";
import { ada } from "../../testing/fake-server";
import { EmailChangeResult } from "./email-change-result";

test("the result stays while the session learns of the change", async () => {
  const [before, changed] = [{ ...ada, new_email: "grace@portico.test" }, { ...ada, email: "grace@portico.test" }];
  let responses = 0;
  const client = {
    // The page asks again for the user whom it knows by then, which takes its time.
    getUser: () => (++responses === 1 ? Promise.resolve({ data: { user: changed }, error: null }) : new Promise(() => undefined)),
    refreshSession: () => Promise.resolve({ data: {}, error: null }),
  };
  const queries = new QueryClient();
  const page = (user: User) => {
    const auth = { client, user, loading: false, redirectOutcome: null } as unknown as AuthState;
    return (
      <QueryClientProvider client={queries}>
        <AuthContext value={auth}>
          <EmailChangeResult />
        </AuthContext>
      </QueryClientProvider>
    );
  };
  const { rerender } = render(page(before));
  const heading = await screen.findByRole("heading", { name: "Email address confirmed" });
  rerender(page(changed));
  expect(responses).toBe(2);
  expect(screen.getByRole("heading")).toBe(heading);
  expect(screen.getByText("Your email address is now grace@portico.test.")).toBeVisible();
});
