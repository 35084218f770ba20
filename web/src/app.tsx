import { ErrorBoundary } from "./components/error-boundary";
import { Layout } from "./components/layout";
import { AuthProvider } from "./lib/auth/auth-provider";
import type { AuthConnection } from "./lib/auth/client";
import type { Config } from "./lib/config";
import { ConfigContext } from "./lib/config-context";
import { Router } from "./router";

export function App({ config, auth }: { config: Config; auth: AuthConnection }) {
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
