import { Moon, Sun } from "lucide-react";
import { useState } from "react";
import * as m from "../paraglide/messages";

type Theme = "light" | "dark";

/** Selects light or dark for this browser. Without a selection the system's theme applies. */
export function ThemeSwitch() {
  const [theme, setTheme] = useState(currentTheme);
  const other = theme === "dark" ? "light" : "dark";
  const label = other === "dark" ? m.theme_use_dark() : m.theme_use_light();
  const Icon = other === "dark" ? Moon : Sun;

  function choose() {
    document.documentElement.dataset.theme = other;
    setTheme(other);
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

function currentTheme(): Theme {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
