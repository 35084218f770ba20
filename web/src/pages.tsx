import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useState } from "react";
import { Route, Switch } from "wouter";
import { PageFrame } from "./components/page-frame";
import { useShownAddress } from "./lib/shown-address";
import { useScrollRestoration } from "./lib/use-scroll-restoration";
import { pages } from "./page-code";
import LandingPage from "./routes/landing";
import NotFoundPage from "./routes/not-found";

/** Every page, and the query cache that they share. */
export default function Pages() {
  const [queries] = useState(
    () => new QueryClient({ defaultOptions: { queries: { retry: 1, staleTime: 10_000, throwOnError: false } } }),
  );
  const { path, search } = useShownAddress();
  useScrollRestoration(`${path}?${search}`);
  return (
    <QueryClientProvider client={queries}>
      <Switch>
        <Route path="/">
          <PageFrame pattern="/">
            <LandingPage />
          </PageFrame>
        </Route>
        {pages.map(({ path, Page }) => (
          <Route key={path} path={path}>
            <PageFrame pattern={path}>
              <Page />
            </PageFrame>
          </Route>
        ))}
        <Route>
          <PageFrame pattern="/*">
            <NotFoundPage />
          </PageFrame>
        </Route>
      </Switch>
    </QueryClientProvider>
  );
}
