import type { User } from "@supabase/supabase-js";
import { type ReactNode, useState } from "react";
import { nameOf, pictureOf } from "../lib/avatar";
import { classNames } from "../lib/class-names";
import { useConfig } from "../lib/config-context";

const sizes = {
  20: "size-5 text-[0.6875rem]",
  64: "size-16 text-2xl",
};

/** The picture of a user in a circle, or else the first letter of the name. It is decoration. */
export default function AccountPicture({ user, size }: { user: User; size: keyof typeof sizes }): ReactNode {
  const config = useConfig();
  const [failed, setFailed] = useState<string | null>(null);
  const picture = pictureOf(user, config, size);
  const initial = (nameOf(user) ?? user.email ?? "").charAt(0).toUpperCase() || "·";
  return (
    <span
      className={classNames(
        "relative grid shrink-0 place-items-center overflow-hidden rounded-full bg-accent-wash font-semibold text-accent-strong",
        sizes[size],
      )}
      aria-hidden
    >
      {initial}
      {picture !== null && picture.src !== failed && (
        <img
          key={picture.src}
          {...picture}
          alt=""
          width={size}
          height={size}
          referrerPolicy="no-referrer"
          className="absolute inset-0 size-full object-cover"
          onError={() => setFailed(picture.src)}
        />
      )}
    </span>
  );
}
