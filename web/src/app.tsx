import { lazy, Suspense, useEffect, useState } from "react";
import { track } from "./analytics";
import { ErrorBoundary } from "./components/error-boundary";
import { Layout } from "./components/layout";
import { AuthProvider } from "./lib/auth/auth-provider";
import type { Auth } from "./lib/auth/client";
import type { Config } from "./lib/config";
import { ConfigContext } from "./lib/config-context";
import { setNavigator } from "./lib/navigation";
import { LandingPage } from "./routes/landing";

const RoutedApp = lazy(() => import("./router").then(({ RoutedApp }) => ({ default: RoutedApp })));

export function App({ config, auth }: { config: Config; auth: Auth }) {
  return (
    <ConfigContext value={config}>
      <AuthProvider auth={auth}>
        <ErrorBoundary>
          <FirstPage />
        </ErrorBoundary>
      </AuthProvider>
    </ConfigContext>
  );
}

/**
 * The landing page stands alone, without router and query cache, so that a first visit loads little. The first step to
 * anywhere else brings the router, which shows every page from then on, the landing page too.
 */
function FirstPage() {
  const [isAlone, setIsAlone] = useState(() => window.location.pathname === "/");

  useEffect(() => {
    if (!isAlone) return;
    track("page_view", { route: "/" });
    setNavigator((href, options) => {
      if (options?.replace === true) window.history.replaceState(null, "", href);
      else window.history.pushState(null, "", href);
      setIsAlone(false);
    });
    const onPopState = () => setIsAlone(window.location.pathname === "/");
    window.addEventListener("popstate", onPopState);
    return () => window.removeEventListener("popstate", onPopState);
  }, [isAlone]);

  if (isAlone) {
    return (
      <Layout>
        <LandingPage />
      </Layout>
    );
  }
  return (
    <Suspense fallback={<Layout>{null}</Layout>}>
      <RoutedApp />
    </Suspense>
  );
}
