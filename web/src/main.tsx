import { startTransition } from "react";
import { createRoot } from "react-dom/client";
import { startAnalytics } from "./analytics";
import { App } from "./app";
import { preloadPage } from "./lazy-pages";
import { openAuth } from "./lib/auth/client";
import { type BrandAccent, type Config, embeddedConfig, loadConfig } from "./lib/config";
import * as m from "./paraglide/messages";
import "./styles/app.css";

async function start(container: HTMLElement, pageCode: Promise<unknown>): Promise<void> {
  let config: Config;
  try {
    config = embeddedConfig() ?? (await loadConfig());
  } catch (error) {
    console.error("The application could not start", error);
    container.replaceChildren(startFailure());
    return;
  }
  if (config.brand.accent !== null) applyAccent(config.brand.accent);
  // The browser's tab shows the brand's mark too.
  if (config.brand.mark !== null) {
    const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    icon?.removeAttribute("type");
    icon?.setAttribute("href", config.brand.mark);
  }
  startAnalytics(config.analytics);
  // Until then the static page shows the frame and a skeleton.
  await pageCode;
  // The client signs in with the code of the address as soon as it is open, and reports that once:
  // the application subscribes first.
  let onMounted = (): void => undefined;
  const mounted = new Promise<void>((resolve) => {
    onMounted = resolve;
  });
  const auth = openAuth(config, mounted);
  document.documentElement.style.setProperty("--skeleton-delay", skeletonDelay());
  const root = createRoot(container);
  // A transition is rendered in short steps, between which the browser answers input.
  startTransition(() => root.render(<App config={config} auth={auth} onMounted={onMounted} />));
}

/**
 * As `public/theme.js`, which runs before the first paint, but only in pages that hold their
 * configuration.
 */
function applyAccent({ fill, onFill, light, dark }: BrandAccent): void {
  const { style } = document.documentElement;
  style.setProperty("--brand-fill", fill);
  style.setProperty("--brand-on-fill", onFill);
  style.setProperty("--hover-mix", onFill === "#000000" ? "white" : "black");
  style.setProperty("--brand-accent", `light-dark(${light}, ${dark})`);
}

/**
 * Continues the animation of the static page's skeleton, which begins 150 ms after the first paint
 * and takes 200.
 */
function skeletonDelay(): string {
  const [paint] = performance.getEntriesByName("first-paint");
  const shownMs = paint ? performance.now() - paint.startTime : 0;
  return `${Math.round(150 - Math.min(shownMs, 350))}ms`;
}

/** Shown without a configuration: there is no brand and no client, only a button to try again. */
function startFailure(): HTMLElement {
  const box = document.createElement("main");
  box.className = "mx-auto max-w-md px-5 py-32 text-center";
  const title = document.createElement("h1");
  title.className = "text-2xl";
  title.textContent = m.start_failed_title();
  const text = document.createElement("p");
  text.className = "mt-3 text-soft";
  text.textContent = m.start_failed_text();
  const retry = document.createElement("button");
  retry.className = "mt-6 min-h-11 rounded bg-accent px-4 font-medium text-on-accent";
  retry.textContent = m.start_failed_retry();
  retry.addEventListener("click", () => window.location.reload());
  box.setAttribute("role", "alert");
  box.append(title, text, retry);
  return box;
}

const container = document.getElementById("root");
if (container) {
  void start(container, preloadPage(window.location.pathname));
}
