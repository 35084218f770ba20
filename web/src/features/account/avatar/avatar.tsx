import type { User } from "@supabase/supabase-js";
import { Camera } from "lucide-react";
import { type DragEvent, lazy, Suspense, useState } from "react";
import AccountPicture from "../../../components/account-picture";
import { useConfig } from "../../../lib/config-context";
import * as m from "../../../paraglide/messages";

const AvatarDialog = lazy(() => import("./avatar-dialog"));

/**
 * The user's picture, with the button that changes it where the server keeps pictures. A file can
 * be dropped on it.
 */
export function Avatar({ user }: { user: User }) {
  const { avatars } = useConfig();
  const [isOpen, setIsOpen] = useState(false);
  const [status, setStatus] = useState("");
  const [dropped, setDropped] = useState<File | null>(null);
  if (!avatars.kept || user.is_anonymous === true) return <AccountPicture user={user} size={64} />;

  function open(file: File | null): void {
    setStatus("");
    setDropped(file);
    setIsOpen(true);
  }

  const close = (): void => setIsOpen(false);

  function onDrop(event: DragEvent): void {
    event.preventDefault();
    open(event.dataTransfer.files[0] ?? null);
  }

  return (
    <div className="relative shrink-0" onDragOver={(event) => event.preventDefault()} onDrop={onDrop}>
      <AccountPicture user={user} size={64} />
      <button
        type="button"
        aria-label={m.avatar_change()}
        aria-haspopup="dialog"
        onClick={() => open(null)}
        className="absolute -right-1.5 -bottom-1.5 grid size-8 place-items-center rounded-full border border-line bg-surface text-ink hover:border-line-strong"
      >
        <Camera aria-hidden className="size-4" />
      </button>
      <p role="status" className="sr-only">
        {status}
      </p>
      {isOpen && (
        <Suspense fallback={null}>
          <AvatarDialog
            user={user}
            dropped={dropped}
            onDone={(text) => {
              setStatus(text);
              close();
            }}
            onClose={close}
          />
        </Suspense>
      )}
    </div>
  );
}
