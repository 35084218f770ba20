import { Moon, Sun } from "lucide-react";
import { useState, useSyncExternalStore } from "react";
import * as m from "../paraglide/messages";

type Theme = "light" | "dark";

/** Selects light or dark for this browser. Without a selection the system's theme applies. */
export function ThemeSwitch() {
  const [chosen, setChosen] = useState(chosenTheme);
  const systemTheme = useSyncExternalStore(onSystemTheme, readSystemTheme);
  const theme = chosen ?? systemTheme;
  const other = theme === "dark" ? "light" : "dark";
  const label = other === "dark" ? m.theme_use_dark() : m.theme_use_light();
  const Icon = other === "dark" ? Moon : Sun;

  function choose() {
    document.documentElement.dataset.theme = other;
    setChosen(other);
    try {
      localStorage.setItem("portico.theme", other);
    } catch {
      // Storage is blocked: the choice lasts as long as the page.
    }
  }

  return (
    <button
      type="button"
      onClick={choose}
      aria-label={label}
      title={label}
      className="grid size-11 place-items-center rounded text-soft transition-colors duration-150 hover:bg-sunken hover:text-ink"
    >
      <Icon aria-hidden className="size-[1.15rem]" />
    </button>
  );
}

/** Returns the theme that was selected in this browser, which `theme.js` has applied. */
function chosenTheme(): Theme | null {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : null;
}

const darkSystem = () => window.matchMedia("(prefers-color-scheme: dark)");

const readSystemTheme = (): Theme => (darkSystem().matches ? "dark" : "light");

function onSystemTheme(changed: () => void): () => void {
  const query = darkSystem();
  query.addEventListener("change", changed);
  return () => query.removeEventListener("change", changed);
}
