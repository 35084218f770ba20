import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { run } from "axe-core";
import type { ReactNode } from "react";
import { expect, test, vi } from "vitest";
import { Button } from "./button";
import { ConfirmDialog } from "./confirm-dialog";
import { Menu, MenuItem, MenuLink, MenuSeparator } from "./menu";

function show(content: ReactNode) {
  return { user: userEvent.setup(), ...render(<main>{content}</main>) };
}

/**
 * Fails with what axe finds, and with an inline style element, which our content security policy
 * forbids.
 */
async function expectSound(): Promise<void> {
  // jsdom draws nothing, so contrast is left to the browser tests. A part is no page with a
  // heading.
  const { violations } = await run(document.body, {
    rules: { "color-contrast": { enabled: false }, "page-has-heading-one": { enabled: false }, region: { enabled: false } },
  });
  expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
  expect(document.querySelectorAll("style")).toHaveLength(0);
}

test("a confirmation is named by its title and confirms in the words of the action", async () => {
  const onConfirm = vi.fn();
  const { user } = show(
    <ConfirmDialog title="Remove GitHub?" action="Remove GitHub" isPending={false} onConfirm={onConfirm} onClose={vi.fn()}>
      You can no longer sign in this way.
    </ConfirmDialog>,
  );
  const dialog = screen.getByRole("dialog", { name: "Remove GitHub?" });
  await expectSound();
  await user.click(within(dialog).getByRole("button", { name: "Remove GitHub" }));
  expect(onConfirm).toHaveBeenCalledOnce();
});

test("a menu opens by keyboard, runs the selected action and returns the focus", async () => {
  const onRename = vi.fn();
  const { user } = show(
    <Menu trigger={<Button>Actions</Button>}>
      <MenuItem onSelect={onRename}>Rename</MenuItem>
      <MenuLink href="/app">Open</MenuLink>
      <MenuSeparator />
      <MenuItem tone="danger" disabled>
        Delete
      </MenuItem>
    </Menu>,
  );
  const trigger = screen.getByRole("button", { name: "Actions" });
  trigger.focus();
  await user.keyboard("{Enter}");
  expect(await screen.findByRole("menuitem", { name: "Rename" })).toHaveFocus();
  expect(screen.getByRole("menuitem", { name: "Open" })).toHaveAttribute("href", "/app");
  expect(screen.getByRole("menuitem", { name: "Delete" })).toHaveAttribute("aria-disabled", "true");
  await expectSound();
  await user.keyboard("{Enter}");
  expect(onRename).toHaveBeenCalledOnce();
  expect(screen.queryByRole("menu")).toBeNull();
  expect(trigger).toHaveFocus();
});
