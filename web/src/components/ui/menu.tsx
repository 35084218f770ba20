import * as DropdownMenu from "@radix-ui/react-dropdown-menu";
import type { ComponentProps, ReactNode } from "react";
import { classNames } from "../../lib/class-names";
import { AppLink } from "../../lib/navigation";

/** A button that opens a menu. */
export function Menu({ trigger, children }: { trigger: ReactNode; children: ReactNode }) {
  return (
    // A modal menu blocks scrolling by a style element, which our content security policy forbids.
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content
          align="end"
          sideOffset={6}
          collisionPadding={8}
          className="z-10 min-w-44 rounded border border-line bg-surface p-1 text-sm text-ink shadow-card"
        >
          {children}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

const itemClass =
  "flex min-h-9 w-full cursor-default items-center gap-2 rounded px-3 outline-none select-none data-disabled:opacity-60 data-highlighted:bg-sunken";

/** An action of a menu. */
export function MenuItem({
  tone = "normal",
  ...props
}: Pick<ComponentProps<typeof DropdownMenu.Item>, "children" | "disabled" | "onSelect"> & { tone?: "normal" | "danger" }) {
  return <DropdownMenu.Item className={classNames(itemClass, tone === "danger" && "text-danger")} {...props} />;
}

/** A link of a menu to a page of this application. */
export function MenuLink(props: Pick<ComponentProps<typeof AppLink>, "children" | "href">) {
  return (
    <DropdownMenu.Item asChild>
      <AppLink className={itemClass} {...props} />
    </DropdownMenu.Item>
  );
}

export function MenuSeparator() {
  return <DropdownMenu.Separator className="my-1 h-px bg-line" />;
}
