import type { Session, User } from "@supabase/supabase-js";
import type { ReactNode } from "react";
import { RelativeTime } from "../../components/relative-time";
import { RichText } from "../../components/rich-text";
import { readAccessToken } from "../../lib/access-token";
import { signInMethod } from "../../lib/auth/sign-in-events";
import { providerName } from "../../lib/auth/provider-name";
import { nameOf } from "../../lib/avatar";
import * as m from "../../paraglide/messages";
import { Avatar } from "./avatar/avatar";

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
          {contact !== null && name !== contact && (
            <>
              <span className="max-sm:block">{contact}</span>
              <span className="max-sm:hidden"> · </span>
            </>
          )}
          <SignInText session={session} />
        </p>
      </div>
    </div>
  );
}

/** Returns the email address, or else the phone number. */
function contactOf({ email, phone }: User): string | null {
  if (email !== undefined && email !== "") return email;
  return phone !== undefined && phone !== "" ? `+${phone}` : null;
}

function displayName(user: User): string | null {
  return nameOf(user) ?? (user.is_anonymous === true ? m.greeting_guest() : null);
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
