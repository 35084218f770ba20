import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  rootRouteId,
  RouterProvider,
  type RouterState,
  useRouterState,
} from "@tanstack/react-router";
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { track } from "./analytics";
import { ErrorBoundary } from "./components/error-boundary";
import { Layout } from "./components/layout";
import { Skeleton } from "./components/ui/skeleton";
import { setNavigator } from "./lib/navigation";
import { LandingPage } from "./routes/landing";
import { NotFoundPage } from "./routes/not-found";

const root = createRootRoute({
  component: () => (
    <Layout>
      <PageChange />
      <Outlet />
    </Layout>
  ),
  notFoundComponent: NotFoundPage,
});

const page = <Path extends string>(path: Path, component: ReturnType<typeof lazyRouteComponent>) =>
  createRoute({ getParentRoute: () => root, path, component });

const routes = root.addChildren([
  createRoute({ getParentRoute: () => root, path: "/", component: LandingPage }),
  page("/sign-in", lazyRouteComponent(() => import("./routes/sign-in"), "SignInPage")),
  page("/sign-up", lazyRouteComponent(() => import("./routes/sign-up"), "SignUpPage")),
  page("/forgot-password", lazyRouteComponent(() => import("./routes/forgot-password"), "ForgotPasswordPage")),
  page("/update-password", lazyRouteComponent(() => import("./routes/update-password"), "UpdatePasswordPage")),
  page("/verify", lazyRouteComponent(() => import("./routes/verify"), "VerifyPage")),
  page("/confirm-email-change", lazyRouteComponent(() => import("./routes/confirm-email-change"), "ConfirmEmailChangePage")),
  page("/app", lazyRouteComponent(() => import("./routes/account"), "AccountPage")),
  page("/mailbox", lazyRouteComponent(() => import("./routes/mailbox"), "MailboxPage")),
]);

export function createAppRouter() {
  return createRouter({
    routeTree: routes,
    defaultPreload: "intent",
    scrollRestoration: true,
    defaultPendingMs: 150,
    defaultPendingComponent: () => <Skeleton className="mx-auto mt-16 h-72 w-full max-w-md" />,
    defaultErrorComponent: ({ error }) => (
      <ErrorBoundary>
        <Rethrow error={error} />
      </ErrorBoundary>
    ),
    // Plain names and values: an address says what it says, no JSON in it.
    parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
    stringifySearch: (search) => {
      const text = new URLSearchParams(search as Record<string, string>).toString();
      return text === "" ? "" : `?${text}`;
    },
  });
}

export function RoutedApp() {
  const [router] = useState(createAppRouter);
  const [queries] = useState(
    () => new QueryClient({ defaultOptions: { queries: { retry: 1, staleTime: 10_000, throwOnError: false } } }),
  );
  // A layout effect: the guards' own effects already go places.
  useLayoutEffect(() => {
    setNavigator((href, options) => {
      if (options?.replace === true) router.history.replace(href);
      else router.history.push(href);
    });
  }, [router]);
  return (
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  );
}

/** The pattern of the page that is shown, once nothing loads any more. */
function shownRoute(state: RouterState): string | null {
  if (state.status !== "idle") return null;
  const match: unknown = state.matches.at(-1);
  if (typeof match !== "object" || match === null) return null;
  // Only the root matches an address that leads nowhere.
  if (Reflect.get(match, "routeId") === rootRouteId) return "/*";
  const route: unknown = Reflect.get(match, "fullPath");
  return typeof route === "string" ? route : null;
}

/** Reports the page and moves the focus to it, so that a screen reader starts at its beginning. */
function PageChange() {
  const route: string | null = useRouterState({ select: shownRoute });
  const previous = useRef<string | null>(null);
  useEffect(() => {
    if (route === null || route === previous.current) return;
    const isFirst = previous.current === null;
    previous.current = route;
    track("page_view", { route });
    const hasFocus = document.activeElement !== null && document.activeElement !== document.body;
    if (!isFirst || !hasFocus) document.getElementById("main")?.focus({ preventScroll: true });
  }, [route]);
  return null;
}

function Rethrow({ error }: { error: unknown }): null {
  throw error;
}
