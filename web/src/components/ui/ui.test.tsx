import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { run } from "axe-core";
import { type ReactNode, useState } from "react";
import { expect, test, vi } from "vitest";
import { Button } from "./button";
import { ConfirmDialog } from "./confirm-dialog";
import { Menu, MenuItem, MenuLink, MenuSeparator } from "./menu";
import { Table } from "./table";
import { Tabs } from "./tabs";

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

test("the arrow keys select a tab, and only its content shows", async () => {
  function Example() {
    const [value, setValue] = useState<"first" | "second">("first");
    const tabs = [
      { value: "first" as const, label: "First", content: <p>One</p> },
      { value: "second" as const, label: "Second", content: <p>Two</p> },
    ];
    return <Tabs label="Examples" tabs={tabs} value={value} onValueChange={setValue} />;
  }
  const { user } = show(<Example />);
  expect(screen.getByText("One")).toBeVisible();
  await expectSound();
  await user.click(screen.getByRole("tab", { name: "First" }));
  await user.keyboard("{ArrowRight}");
  expect(screen.getByRole("tab", { name: "Second" })).toHaveAttribute("aria-selected", "true");
  expect(screen.getByRole("tabpanel", { name: "Second" })).toHaveTextContent("Two");
  expect(screen.queryByText("One")).toBeNull();
});

test("a table has its caption, headers and rows, and says when there are none", async () => {
  const columns = [
    { id: "name", header: "Name", cell: (row: { name: string; size: number }) => row.name },
    { id: "size", header: "Size", cell: (row: { name: string; size: number }) => row.size, align: "end" as const },
  ];
  const rows = [{ name: "a.txt", size: 12 }];
  const table = (shown: typeof rows) => (
    <Table caption="Files" columns={columns} rows={shown} rowKey={(row) => row.name} empty="No files yet" />
  );
  const { rerender } = show(table(rows));
  expect(screen.getByRole("table", { name: "Files" })).toBeVisible();
  expect(screen.getByRole("row", { name: "a.txt 12" })).toBeVisible();
  expect(screen.getAllByRole("columnheader").map((header) => header.textContent)).toEqual(["Name", "Size"]);
  await expectSound();
  rerender(<main>{table([])}</main>);
  expect(screen.getByRole("cell", { name: "No files yet" })).toBeVisible();
});
