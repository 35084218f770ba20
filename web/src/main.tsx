import { createRoot } from "react-dom/client";
import { startAnalytics } from "./analytics";
import { App } from "./app";
import { openAuth } from "./lib/auth/client";
import { type Config, loadConfig } from "./lib/config";
import { preloadPage } from "./page-code";
import * as m from "./paraglide/messages";
import "./styles/app.css";

async function start(container: HTMLElement, pageCode: Promise<unknown>): Promise<void> {
  let config: Config;
  try {
    config = await loadConfig();
  } catch (error) {
    console.error("The application could not start", error);
    container.append(startFailure());
    return;
  }
  if (config.brand.accent !== null) document.documentElement.style.setProperty("--brand-accent", config.brand.accent);
  // The browser's tab shows the brand's mark too.
  if (config.brand.mark !== null) {
    const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    icon?.removeAttribute("type");
    icon?.setAttribute("href", config.brand.mark);
  }
  startAnalytics(config.analytics);
  createRoot(container).render(<App config={config} auth={openAuth(config, pageCode)} />);
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
