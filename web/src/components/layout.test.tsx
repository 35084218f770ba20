import { screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { fakeServer, session, storeSession } from "../testing/fake-server";
import { renderApp } from "../testing/render-app";

vi.mock("./account-menu", () => {
  throw new TypeError("Failed to fetch dynamically imported module");
});

test("a link leads to the account where the menu cannot be loaded", async () => {
  fakeServer();
  storeSession(session());
  renderApp("/");
  expect(await screen.findByRole("link", { name: "Account" }, { timeout: 20_000 })).toHaveAttribute("href", "/app");
  expect(await screen.findByRole("link", { name: "Open your account" })).toBeVisible();
});
