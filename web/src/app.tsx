import { useEffect } from "react";
import { ErrorBoundary } from "./components/error-boundary";
import { Layout } from "./components/layout";
import { AuthProvider } from "./lib/auth/auth-provider";
import type { AuthConnection } from "./lib/auth/client";
import type { Config } from "./lib/config";
import { ConfigContext } from "./lib/config-context";
import { Router } from "./router";

/** The application. `onMounted` is called when it has subscribed to the changes of the session. */
export function App({ config, auth, onMounted }: { config: Config; auth: AuthConnection; onMounted?: () => void }) {
  // Effects of children run first.
  useEffect(() => onMounted?.(), [onMounted]);
  return (
    <ConfigContext value={config}>
      <AuthProvider auth={auth}>
        <ErrorBoundary>
          <Layout>
            <Router />
          </Layout>
        </ErrorBoundary>
      </AuthProvider>
    </ConfigContext>
  );
}
