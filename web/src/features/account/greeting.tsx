import type { Session, User } from "@supabase/supabase-js";
import type { ReactNode } from "react";
import { RelativeTime } from "../../components/relative-time";
import { RichText } from "../../components/rich-text";
import { readAccessToken } from "../../lib/access-token";
import { signInMethod } from "../../lib/auth/sign-in-events";
import { providerName } from "../../lib/auth/provider-name";
import { useConfig } from "../../lib/config-context";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";

const text = z.catch(z.optional(z.string()), undefined);
/** What providers and apps store about a user. */
const metadataSchema = z.catch(z.object({ avatar_url: text, picture: text, full_name: text, name: text }), {});

/** The signed-in user, and how and when this session was opened. */
export function Greeting({ session }: { session: Session }) {
  const { user } = session;
  const name = displayName(user);
  const contact = contactOf(user);
  return (
    <div className="flex min-w-0 flex-1 basis-72 items-start gap-5 sm:items-center">
      <Avatar user={user} />
      <div className="min-w-0">
        <h1 className="truncate text-[clamp(1.6rem,1.2rem+2vw,2.25rem)]">
          {name === null ? m.greeting_without_name() : m.greeting({ name })}
        </h1>
        <p className="mt-1 text-soft [overflow-wrap:anywhere]">
          {contact !== null && name !== contact && <>{contact} · </>}
          <SignInText session={session} />
        </p>
      </div>
    </div>
  );
}

function Avatar({ user }: { user: User }) {
  const { avatar_url, picture } = metadataSchema.parse(user.user_metadata);
  const { development } = useConfig();
  const url = avatar_url ?? picture;
  const initial = (displayName(user) ?? user.email ?? "·").charAt(0).toUpperCase();
  return (
    <span className="relative grid size-16 shrink-0 place-items-center overflow-hidden rounded-full bg-accent-wash text-2xl font-semibold text-accent-strong">
      <span aria-hidden>{initial}</span>
      {url !== undefined && isAllowedPicture(url, development) && (
        <img
          src={url}
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

/**
 * Returns true for pictures over https, and for those of the emulated provider, which is on this
 * machine.
 */
function isAllowedPicture(url: string, development: boolean): boolean {
  return url.startsWith("https://") || (development && /^http:\/\/(127\.0\.0\.1|localhost)[:/]/.test(url));
}

/** Returns the email address, or else the phone number. */
function contactOf({ email, phone }: User): string | null {
  if (email !== undefined && email !== "") return email;
  return phone !== undefined && phone !== "" ? `+${phone}` : null;
}

function displayName(user: User): string | null {
  const { full_name, name } = metadataSchema.parse(user.user_metadata);
  const known = (full_name ?? name)?.trim() ?? "";
  if (known !== "") return known;
  return user.is_anonymous === true ? m.greeting_guest() : null;
}

/**
 * Tells how this session was opened; from the account's own record where the token does not have
 * it.
 */
function SignInText({ session }: { session: Session }) {
  const opened = readAccessToken(session.access_token).methods.at(-1);
  const recorded = session.user.last_sign_in_at;
  const at = opened?.at ?? (recorded === undefined ? null : new Date(recorded));
  const elements = { time: (): ReactNode => at && <RelativeTime at={at} /> };
  switch (opened?.method) {
    case "password":
      return <RichText message={m.signed_in_password} inputs={{}} elements={elements} />;
    case "otp":
    case "magiclink":
      return contactOf(session.user)?.startsWith("+") === true ? (
        <RichText message={m.signed_in_text} inputs={{}} elements={elements} />
      ) : (
        <RichText message={m.signed_in_code} inputs={{}} elements={elements} />
      );
    case "passkey":
      return <RichText message={m.signed_in_passkey} inputs={{}} elements={elements} />;
    case "recovery":
      return <RichText message={m.signed_in_recovery} inputs={{}} elements={elements} />;
    default: {
      const provider = signInMethod(session);
      return provider === "email" ? (
        <RichText message={m.signed_in_email} inputs={{}} elements={elements} />
      ) : (
        <RichText message={m.signed_in_provider} inputs={{ provider: providerName(provider) }} elements={elements} />
      );
    }
  }
}
