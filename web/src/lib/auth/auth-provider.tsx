import type { AuthChangeEvent, Provider, Session } from "@supabase/supabase-js";
import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { reset, track } from "../../analytics";
import { rememberNext } from "../next";
import type { ArrivalProblem } from "./redirect-outcome";
import { AuthContext, type AuthState } from "./auth-context";
import { type Auth, sessionKey } from "./client";
import { signInReports } from "./sign-in-events";

interface Known {
  loading: boolean;
  session: Session | null;
  hasEnded: boolean;
  isUnreachable: boolean;
  isRecovering: boolean;
}

const atStart: Known = { loading: true, session: null, hasEnded: false, isUnreachable: false, isRecovering: false };
const methodKey = "portico.last-method";

/** Holds who is signed in, as the official client tells it, for every page below. */
export function AuthProvider({ auth, children }: { auth: Auth; children: ReactNode }) {
  const { client, storage } = auth;
  const [known, setKnown] = useState(atStart);
  const [problem, setProblem] = useState<ArrivalProblem | null>(null);
  const isLeaving = useRef(false);

  useEffect(() => {
    const reports = signInReports(auth);
    let hadSession = auth.sessionAtStart !== null;

    function onEvent(event: AuthChangeEvent, session: Session | null) {
      if (session) {
        hadSession = true;
        setKnown((before) => ({
          ...atStart,
          loading: false,
          session,
          isRecovering: event === "PASSWORD_RECOVERY" || before.isRecovering,
        }));
        if (event === "SIGNED_IN") reports.onSignedIn(session);
        return;
      }
      const isSignedOut = event === "SIGNED_OUT";
      if (isSignedOut) reset();
      // "Signed out" is final, whatever the storage says: a word from another tab can arrive before the removal of what it stored.
      const isStored = !isSignedOut && storage.getItem(sessionKey) !== null;
      const hasEnded = hadSession && !isLeaving.current && !isStored;
      hadSession = isStored;
      setKnown((before) => ({
        ...atStart,
        loading: false,
        // The client may say "no session" twice, for instance when another tab signed out while this one asked who it is;
        // the second time does not make it forgotten that there was one.
        hasEnded: hasEnded || before.hasEnded,
        isUnreachable: event === "INITIAL_SESSION" && isStored,
      }));
    }

    let isGone = false;
    let subscription: { unsubscribe: () => void } | undefined;
    void auth.opened.then((opened) => {
      if (!isGone) subscription = opened.onAuthStateChange(onEvent).data.subscription;
    });
    return () => {
      isGone = true;
      subscription?.unsubscribe();
    };
  }, [auth, storage]);

  useEffect(() => {
    let isCurrent = true;
    void auth.arrival.then((found) => {
      if (isCurrent && found) setProblem(found);
    });
    return () => {
      isCurrent = false;
    };
  }, [auth]);

  const rememberMethod = useCallback((method: string) => storage.setItem(methodKey, method), [storage]);

  const signInWithProvider = useCallback(
    async (provider: Provider, next: string | null = null) => {
      rememberNext(next);
      rememberMethod(provider);
      const { error } = await client.signInWithOAuth({
        provider,
        options: { redirectTo: `${window.location.origin}/app` },
      });
      if (error) throw error;
    },
    [client, rememberMethod],
  );

  const signInWithGoogle = useCallback(
    (next?: string | null) => signInWithProvider("google", next),
    [signInWithProvider],
  );

  const signOut = useCallback(async () => {
    isLeaving.current = true;
    track("sign_out", {});
    try {
      // This device only; the account's overview offers to end the other sessions.
      const { error } = await client.signOut({ scope: "local" });
      if (error) throw error;
      setKnown({ ...atStart, loading: false });
    } catch (error) {
      console.error("Error signing out", error);
      throw error;
    } finally {
      isLeaving.current = false;
    }
  }, [client]);

  const dismissProblem = useCallback(() => setProblem(null), []);

  const state = useMemo<AuthState>(
    () => ({
      user: known.session?.user ?? null,
      session: known.session,
      loading: known.loading,
      isUndecided: known.loading && auth.mayBeSignedIn,
      hasEnded: known.hasEnded,
      isUnreachable: known.isUnreachable,
      isRecovering: known.isRecovering,
      isRemembered: storage.isRemembered,
      lastMethod: storage.getItem(methodKey),
      problem,
      dismissProblem,
      rememberMethod,
      signInWithGoogle,
      signInWithProvider,
      signOut,
      client,
    }),
    [known, problem, dismissProblem, rememberMethod, signInWithGoogle, signInWithProvider, signOut, client, storage, auth.mayBeSignedIn],
  );
  return <AuthContext value={state}>{children}</AuthContext>;
}
