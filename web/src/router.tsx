import { Suspense, useCallback, useDeferredValue, useMemo, useRef, useState } from "react";
import { Router as LocationProvider } from "wouter";
import { navigate, usePathname, useSearch } from "wouter/use-browser-location";
import { track } from "./analytics";
import { ErrorBoundary } from "./components/error-boundary";
import { PageFrame } from "./components/page-frame";
import { Skeleton } from "./components/ui/skeleton";
import { sharedPages } from "./lazy-pages";
import { type ShownAddress, ShownAddressContext, useShownAddress } from "./lib/shown-address";
import LandingPage from "./routes/landing";

const { Page: Pages } = sharedPages;

/**
 * Shows the page of the current address.
 *
 * The router is wouter: it is small enough for the first script, so that it serves the landing page
 * too and the layout stays mounted from the first paint on. TanStack Router (28 KiB compressed)
 * exceeds the landing page's budget, and keeping it for the other pages needs a second kind of
 * navigation. What wouter lacks is in `lib/`: typed addresses in `paths.ts`, typed query parameters
 * in `use-search-params.ts`. The features' queries load the data.
 *
 * The landing page needs no query cache. The first step to another page loads `pages.tsx`, which
 * shows every page from then on.
 */
export function Router() {
  const shown = useDeferredAddress();
  const isLanding = shown.path === "/";
  const [showsOnlyLanding, setShowsOnlyLanding] = useState(isLanding);
  if (showsOnlyLanding && !isLanding) setShowsOnlyLanding(false);
  return (
    <ShownAddressContext value={shown}>
      <LocationProvider hook={useShownLocation}>
        <ErrorBoundary address={shown.path}>
          <Suspense fallback={<Skeleton className="mx-auto mt-16 h-72 w-full max-w-md" />}>
            {showsOnlyLanding ? (
              <PageFrame pattern="/">
                <LandingPage />
              </PageFrame>
            ) : (
              <Pages />
            )}
          </Suspense>
        </ErrorBoundary>
      </LocationProvider>
    </ShownAddressContext>
  );
}

/**
 * The browser's address, later: the page that is shown keeps its own until the code of the next one
 * is loaded.
 */
function useDeferredAddress(): ShownAddress {
  // One value, so that path and query parameters never belong to two addresses. A path has no
  // question mark.
  const address = useDeferredValue(`${usePathname()}?${useSearch().slice(1)}`);
  const onShown = usePageReports();
  return useMemo(() => {
    const [path = "/"] = address.split("?", 1);
    return { path, search: address.slice(path.length + 1), onShown };
  }, [address, onShown]);
}

/** Reports each page and moves the focus to it, so that a screen reader starts at its beginning. */
function usePageReports(): (pattern: string) => void {
  const previous = useRef<string | null>(null);
  return useCallback((pattern: string) => {
    if (pattern === previous.current) return;
    const isFirst = previous.current === null;
    // The skeletons of later pages begin invisible again.
    document.documentElement.style.removeProperty("--skeleton-delay");
    previous.current = pattern;
    track("page_view", { route: pattern });
    // The browser itself begins a document at its start, before the link that skips the header.
    if (isFirst) return;
    document.getElementById("main")?.focus({ preventScroll: true });
  }, []);
}

function useShownLocation(): [string, typeof navigate] {
  return [useShownAddress().path, navigate];
}
