import type { Session, User } from "@supabase/supabase-js";
import { RelativeTime } from "../../components/relative-time";
import { readAccessToken } from "../../lib/claims";
import { useConfig } from "../../lib/config-context";
import { providerName } from "../../lib/auth/sign-in-methods";
import { signInMethod } from "../../lib/auth/sign-in-events";

/** Who is here, and how and when they came in. */
export function Greeting({ session }: { session: Session }) {
  const { user } = session;
  const name = displayName(user);
  const address = addressOf(user);
  const { how, at } = signInOf(session);
  return (
    <div className="flex min-w-0 items-center gap-5">
      <Avatar user={user} />
      <div className="min-w-0">
        <h1 className="truncate text-[clamp(1.6rem,1.2rem+2vw,2.25rem)]">{name === null ? "Hello" : `Hello, ${name}`}</h1>
        <p className="mt-1 text-soft [overflow-wrap:anywhere]">
          {address !== null && name !== address && <>{address} · </>}
          Signed in {how}
          {at && (
            <>
              {" "}
              <RelativeTime at={at} />
            </>
          )}
        </p>
      </div>
    </div>
  );
}

function Avatar({ user }: { user: User }) {
  const picture: unknown = user.user_metadata.avatar_url ?? user.user_metadata.picture;
  const { development } = useConfig();
  const initial = (displayName(user) ?? user.email ?? "·").charAt(0).toUpperCase();
  return (
    <span className="relative grid size-16 shrink-0 place-items-center overflow-hidden rounded-full bg-accent-wash text-2xl font-semibold text-accent-strong">
      <span aria-hidden>{initial}</span>
      {typeof picture === "string" && isShown(picture, development) && (
        <img
          src={picture}
          alt=""
          width={64}
          height={64}
          referrerPolicy="no-referrer"
          className="absolute inset-0 size-full object-cover"
          onError={(event) => event.currentTarget.remove()}
        />
      )}
    </span>
  );
}

/** Pictures of others' making come over https; those of the emulated provider from this machine. */
function isShown(picture: string, development: boolean): boolean {
  return picture.startsWith("https://") || (development && /^http:\/\/(127\.0\.0\.1|localhost)[:/]/.test(picture));
}

/** The e-mail address, or else the phone number. */
function addressOf({ email, phone }: User): string | null {
  if (email !== undefined && email !== "") return email;
  return phone !== undefined && phone !== "" ? `+${phone}` : null;
}

function displayName(user: User): string | null {
  const name: unknown = user.user_metadata.full_name ?? user.user_metadata.name;
  if (typeof name === "string" && name.trim() !== "") return name.trim();
  return user.is_anonymous === true ? "guest" : null;
}

/** How this very session was opened; the account's own record where the token does not say. */
function signInOf(session: Session): { how: string; at: Date | null } {
  const opened = readAccessToken(session.access_token).methods.at(-1);
  const recorded = session.user.last_sign_in_at;
  const at = opened?.at ?? (recorded === undefined ? null : new Date(recorded));
  switch (opened?.method) {
    case "password":
      return { how: "with your password", at };
    case "otp":
    case "magiclink":
      return { how: addressOf(session.user)?.startsWith("+") === true ? "with a text message" : "with a code from your inbox", at };
    case "recovery":
      return { how: "to set a new password", at };
    default: {
      const provider = signInMethod(session);
      return { how: provider === "email" ? "by e-mail" : `with ${providerName(provider)}`, at };
    }
  }
}
