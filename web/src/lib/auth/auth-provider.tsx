import type { AuthChangeEvent, Provider, Session } from "@supabase/supabase-js";
import { type ReactNode, startTransition, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { reset, track } from "../../analytics";
import { rememberNext } from "../next";
import { pendingProviderKey, tabStorage } from "../storage";
import type { AppAddress } from "../paths";
import { AuthContext, type AuthState } from "./auth-context";
import { type AuthConnection, sessionKey } from "./client";
import type { RedirectOutcome } from "./redirect-outcome";
import { createSignInReporter } from "./sign-in-events";

type SessionState = Pick<AuthState, "loading" | "session" | "hasEnded" | "isUnreachable" | "isRecovering">;

const initialState: SessionState = {
  loading: true,
  session: null,
  hasEnded: false,
  isUnreachable: false,
  isRecovering: false,
};
const lastMethodKey = "portico.last-method";

/** Provides the state of the official client to every page below. */
export function AuthProvider({ auth, children }: { auth: AuthConnection; children: ReactNode }) {
  const { client, storage } = auth;
  const [state, setState] = useState(initialState);
  const [redirectOutcome, setRedirectOutcome] = useState<RedirectOutcome | null>(null);
  const isSigningOut = useRef(false);

  useEffect(() => {
    const reporter = createSignInReporter(auth);
    let hadSession = auth.sessionAtStart !== null;

    function onEvent(event: AuthChangeEvent, session: Session | null) {
      // The first content of a page is large. A transition is rendered in short steps, between
      // which the browser answers input.
      const change: typeof setState = (next) =>
        event === "INITIAL_SESSION" ? startTransition(() => setState(next)) : setState(next);
      if (session) {
        hadSession = true;
        change((before) => ({
          ...initialState,
          loading: false,
          session,
          isRecovering: event === "PASSWORD_RECOVERY" || before.isRecovering,
        }));
        if (event === "SIGNED_IN") {
          const provider = tabStorage.getItem(pendingProviderKey);
          tabStorage.removeItem(pendingProviderKey);
          if (provider !== null) storage.setItem(lastMethodKey, provider);
          reporter.onSignedIn(session);
        }
        return;
      }
      const isSignedOut = event === "SIGNED_OUT";
      if (isSignedOut) reset();
      // "Signed out" is final, whatever the storage holds: a message from another tab can arrive
      // before that tab removes its entry.
      const isStored = !isSignedOut && storage.getItem(sessionKey) !== null;
      const hasEnded = hadSession && !isSigningOut.current && !isStored;
      hadSession = isStored;
      change((before) => ({
        ...initialState,
        loading: false,
        // The client may report "no session" twice, for instance when another tab signs out while
        // this one requests the user. The second report must not hide that there was a session.
        hasEnded: hasEnded || before.hasEnded,
        isUnreachable: event === "INITIAL_SESSION" && isStored,
      }));
    }

    let isUnmounted = false;
    let subscription: { unsubscribe: () => void } | undefined;
    void auth.opened.then((opened) => {
      if (!isUnmounted) subscription = opened.onAuthStateChange(onEvent).data.subscription;
    });
    return () => {
      isUnmounted = true;
      subscription?.unsubscribe();
    };
  }, [auth, storage]);

  useEffect(() => {
    let isCurrent = true;
    void auth.redirectOutcome.then((outcome) => {
      if (isCurrent && outcome) setRedirectOutcome(outcome);
    });
    return () => {
      isCurrent = false;
    };
  }, [auth]);

  const rememberMethod = useCallback((method: string) => storage.setItem(lastMethodKey, method), [storage]);

  const signInWithProvider = useCallback(
    async (provider: Provider, next: AppAddress | null = null) => {
      rememberNext(next);
      // It becomes the last method once it has succeeded.
      tabStorage.setItem(pendingProviderKey, provider);
      const { error } = await client.signInWithOAuth({
        provider,
        options: { redirectTo: `${window.location.origin}/app` },
      });
      if (error) throw error;
    },
    [client],
  );

  const signInWithGoogle = useCallback(
    (next?: AppAddress | null) => signInWithProvider("google", next),
    [signInWithProvider],
  );

  const signOut = useCallback(async () => {
    isSigningOut.current = true;
    track("sign_out", {});
    try {
      // This device only; the account page can end the other sessions.
      const { error } = await client.signOut({ scope: "local" });
      if (error) throw error;
      setState({ ...initialState, loading: false });
    } catch (error) {
      console.error("Error signing out", error);
      throw error;
    } finally {
      isSigningOut.current = false;
    }
  }, [client]);

  const signOutHere = useCallback(async () => {
    isSigningOut.current = true;
    // Without a stored session the client sends no request, and tells the other tabs.
    storage.removeItem(sessionKey);
    await client.signOut({ scope: "local" });
    setState({ ...initialState, loading: false });
    isSigningOut.current = false;
  }, [client, storage]);

  const dismissRedirectOutcome = useCallback(() => setRedirectOutcome(null), []);

  const value = useMemo<AuthState>(
    () => ({
      ...state,
      user: state.session?.user ?? null,
      isUndecided: state.loading && auth.mayBeSignedIn,
      isRemembered: storage.isRemembered,
      lastMethod: storage.getItem(lastMethodKey),
      redirectOutcome,
      dismissRedirectOutcome,
      rememberMethod,
      signInWithGoogle,
      signInWithProvider,
      signOut,
      signOutHere,
      isRedirect: auth.isRedirect,
      client,
    }),
    [
      state,
      redirectOutcome,
      dismissRedirectOutcome,
      rememberMethod,
      signInWithGoogle,
      signInWithProvider,
      signOut,
      signOutHere,
      client,
      storage,
      auth.isRedirect,
      auth.mayBeSignedIn,
    ],
  );
  return <AuthContext value={value}>{children}</AuthContext>;
}
