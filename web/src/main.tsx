import { createRoot } from "react-dom/client";
import { startAnalytics } from "./analytics";
import { App } from "./app";
import { openAuth } from "./lib/auth/client";
import { type Config, loadConfig } from "./lib/config";
import "./styles/app.css";

/** The code of the pages that people come to from elsewhere, which would else be asked for step by step. */
const entrances: Record<string, () => Promise<unknown>> = {
  "/sign-in": () => import("./routes/sign-in"),
  "/sign-up": () => import("./routes/sign-up"),
  "/app": () => import("./routes/account"),
};

/** Asks for the page's code while its configuration is still on the way. What fails here is asked for again, and told. */
function fetchAhead(pathname: string): Promise<unknown> {
  if (pathname === "/") return Promise.resolve();
  return Promise.allSettled([import("./router"), entrances[pathname]?.()]);
}

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
  // The product's own mark stands in the tab as well.
  if (config.brand.mark !== null) {
    const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    icon?.removeAttribute("type");
    icon?.setAttribute("href", config.brand.mark);
  }
  startAnalytics(config.analytics);
  createRoot(container).render(<App config={config} auth={openAuth(config, pageCode)} />);
}

/** What is shown when there is not even a configuration: no brand, no client, only a way to try again. */
function startFailure(): HTMLElement {
  const box = document.createElement("main");
  box.className = "mx-auto max-w-md px-5 py-32 text-center";
  const title = document.createElement("h1");
  title.className = "text-2xl";
  title.textContent = "We can’t reach the server";
  const text = document.createElement("p");
  text.className = "mt-3 text-soft";
  text.textContent = "Check your connection, then try again.";
  const retry = document.createElement("button");
  retry.className = "mt-6 min-h-11 rounded bg-accent px-4 font-medium text-on-accent";
  retry.textContent = "Try again";
  retry.addEventListener("click", () => window.location.reload());
  box.setAttribute("role", "alert");
  box.append(title, text, retry);
  return box;
}

const container = document.getElementById("root");
if (container) {
  void start(container, fetchAhead(window.location.pathname));
}
