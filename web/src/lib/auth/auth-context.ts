import type { Provider, Session, User } from "@supabase/supabase-js";
import { createContext, useContext } from "react";
import type { ArrivalProblem } from "./redirect-outcome";
import type { PageClient } from "./deferred-client";

export interface AuthState {
  user: User | null;
  session: Session | null;
  /** True from the start until the first authentication state event. */
  loading: boolean;
  /** Loading, and somebody may turn out to be signed in; where nobody can be, pages for visitors need not wait. */
  isUndecided: boolean;
  signInWithGoogle: (next?: string | null) => Promise<void>;
  signInWithProvider: (provider: Provider, next?: string | null) => Promise<void>;
  signOut: () => Promise<void>;
  /** The session ended without being asked to in this tab. */
  hasEnded: boolean;
  /** There is a session, but the server that could renew it does not answer. */
  isUnreachable: boolean;
  /** Whether the session outlives this page; false where the browser refuses storage. */
  isRemembered: boolean;
  /** What went wrong on the way here, through a link or a provider. */
  problem: ArrivalProblem | null;
  dismissProblem: () => void;
  /** The link that was followed was to set a new password. */
  isRecovering: boolean;
  /** The way to sign in that was last used in this browser. */
  lastMethod: string | null;
  rememberMethod: (method: string) => void;
  client: PageClient;
}

export const AuthContext = createContext<AuthState | null>(null);

export function useAuth(): AuthState {
  const state = useContext(AuthContext);
  if (!state) throw new Error("useAuth must be used within an AuthProvider");
  return state;
}
