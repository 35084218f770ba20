import type { Provider, Session, User } from "@supabase/supabase-js";
import { createContext, useContext } from "react";
import type { AppAddress } from "../paths";
import type { AuthClient } from "./deferred-client";
import type { RedirectOutcome } from "./redirect-outcome";

export interface AuthState {
  user: User | null;
  session: Session | null;
  /** True from the start until the first authentication state event. */
  loading: boolean;
  /** The server redirected the user to this page, perhaps without signing them in. */
  isRedirect: boolean;
  /** Loading, and a session is possible. Without one, pages for visitors need not wait. */
  isUndecided: boolean;
  signInWithGoogle: (next?: AppAddress | null) => Promise<void>;
  signInWithProvider: (provider: Provider, next?: AppAddress | null) => Promise<void>;
  signOut: () => Promise<void>;
  /** Removes the session from this browser, although the server could not end it. */
  signOutHere: () => Promise<void>;
  /** The session ended, and not by a sign-out in this tab. */
  hasEnded: boolean;
  /** There is a session, but the server that could renew it does not respond. */
  isUnreachable: boolean;
  /** The session outlives this page. False where the browser refuses storage. */
  isRemembered: boolean;
  /** The outcome of the link or provider that led here, when it did not sign the user in. */
  redirectOutcome: RedirectOutcome | null;
  dismissRedirectOutcome: () => void;
  /** The link that was opened was for setting a new password. */
  isRecovering: boolean;
  /** The sign-in method that was last used in this browser. */
  lastMethod: string | null;
  rememberMethod: (method: string) => void;
  client: AuthClient;
}

export const AuthContext = createContext<AuthState | null>(null);

export function useAuth(): AuthState {
  const state = useContext(AuthContext);
  if (!state) throw new Error("useAuth must be used within an AuthProvider");
  return state;
}
