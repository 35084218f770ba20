import { type ComponentType, lazy, useState } from "react";

type PageModule = { default: ComponentType };

/**
 * The code of a page could not be loaded: without a connection, or after a new version of the
 * application.
 */
export class PageLoadError extends Error {
  override name = "PageLoadError";
}

/**
 * A page whose code is loaded when it is first shown, or before by `preload`. Code that is there
 * shows at once.
 */
export interface LazyPage {
  Page: ComponentType;
  preload: () => Promise<unknown>;
}

export function lazyPage(load: () => Promise<PageModule>): LazyPage {
  let loaded: PageModule | null = null;
  let loading: Promise<PageModule> | null = null;

  function preload(): Promise<PageModule> {
    loading ??= load().then(
      (module) => (loaded = module),
      (error: unknown) => {
        throw new PageLoadError("The code of the page could not be loaded", { cause: error });
      },
    );
    return loading;
  }

  const Deferred = lazy(preload);
  function Page() {
    // A lazy component waits for a moment even if its code is there. The choice is kept, so that
    // the page is.
    const [Content] = useState<ComponentType>(() => loaded?.default ?? Deferred);
    return <Content />;
  }

  return { Page, preload };
}
