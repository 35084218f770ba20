import { type KeyboardEvent, useId, useRef, useState } from "react";
import { createPortal } from "react-dom";
import { useAuth } from "../lib/auth/auth-context";
import { useSignOut } from "../lib/auth/use-sign-out";
import { AppLink } from "../lib/navigation";
import * as m from "../paraglide/messages";
import AccountPicture from "./account-picture";
import { SignOutAlert } from "./sign-out-alert";
import { Button } from "./ui/button";

const itemClass = "flex min-h-10 w-full items-center rounded px-3 hover:bg-sunken focus-visible:bg-sunken";

/**
 * The button in the header that shows the links of the signed-in user. A disclosure, not
 * `ui/menu.tsx`: that one is 27 KiB (compressed), which every page would load. A failed sign-out is
 * shown in `alerts`, the layout's row for the banners of all pages.
 */
export default function AccountMenu({ alerts }: { alerts: Element | null }) {
  const { user } = useAuth();
  const { start, isPending, failure } = useSignOut();
  const id = useId();
  const [isOpen, setIsOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const contact = [user?.email, user?.phone && `+${user.phone}`].find((text) => text !== undefined && text !== "");
  const close = () => setIsOpen(false);

  function leave() {
    close();
    void start();
  }

  function onKeyDown(event: KeyboardEvent) {
    if (event.key !== "Escape" || !isOpen) return;
    close();
    button.current?.focus();
  }

  return (
    <div
      className="relative"
      onKeyDown={onKeyDown}
      onBlur={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget)) close();
      }}
    >
      <Button
        ref={button}
        tone="secondary"
        size="sm"
        className="min-w-26"
        isPending={isPending}
        aria-expanded={isOpen}
        aria-controls={id}
        onClick={() => setIsOpen(!isOpen)}
      >
        <span className="-ml-1 size-5">
          {user && <AccountPicture user={user} size={20} />}
        </span>
        {m.header_account()}
      </Button>
      <nav
        id={id}
        aria-label={m.header_account()}
        hidden={!isOpen}
        // A click on the text must not take the focus from the menu, which would close it.
        tabIndex={-1}
        className="absolute top-full right-0 z-10 mt-2 w-60 rounded border border-line bg-surface p-1 text-sm text-ink shadow-card outline-none"
      >
        {contact !== undefined && <p className="truncate px-3 py-2 text-soft">{contact}</p>}
        <AppLink href="/app" className={itemClass} onClick={close}>
          {m.open_your_account()}
        </AppLink>
        <AppLink href="/app/security" className={itemClass} onClick={close}>
          {m.header_change_password()}
        </AppLink>
        <button type="button" className={itemClass} onClick={leave}>
          {m.header_sign_out()}
        </button>
      </nav>
      {failure !== null && alerts && createPortal(<SignOutAlert reason={failure} />, alerts)}
    </div>
  );
}
