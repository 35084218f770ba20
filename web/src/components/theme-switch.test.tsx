import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, test, vi } from "vitest";
import { ThemeSwitch } from "./theme-switch";

afterEach(() => {
  delete document.documentElement.dataset.theme;
});

test("the theme switch follows the system until a theme is selected", async () => {
  const query = Object.assign(new EventTarget(), { matches: false });
  vi.spyOn(window, "matchMedia").mockReturnValue(query as unknown as MediaQueryList);
  const systemBecomes = (isDark: boolean) =>
    act(() => {
      query.matches = isDark;
      query.dispatchEvent(new Event("change"));
    });
  render(<ThemeSwitch />);
  screen.getByRole("button", { name: "Use the dark theme" });
  systemBecomes(true);
  await userEvent.click(screen.getByRole("button", { name: "Use the light theme" }));
  expect(document.documentElement.dataset.theme).toBe("light");
  systemBecomes(false);
  systemBecomes(true);
  screen.getByRole("button", { name: "Use the dark theme" });
});
