import type { ReactNode } from "react";
import { AppLink } from "../../lib/navigation";
import { type AppAddress, type PagePath, visitorAddress } from "../../lib/paths";
import { useSearchParams, visitorSearch } from "../../lib/use-search-params";
import * as m from "../../paraglide/messages";

/**
 * The form for an email address or the one for a phone number, and a link to the other. Both forms
 * stay mounted, so that no input is lost; the page's address selects the visible one.
 */
export function ContactSwitch({
  path,
  next,
  emailForm,
  phoneForm,
}: {
  path: PagePath;
  next: AppAddress | null;
  emailForm: ReactNode;
  phoneForm: ReactNode;
}) {
  const isPhoneSelected = useSearchParams(visitorSearch).with === "phone";
  const isPhoneShown = phoneForm !== null && (emailForm === null || isPhoneSelected);
  // The same structure for every set of methods, which may become known after the user began to
  // type.
  return (
    <>
      <div hidden={isPhoneShown}>{emailForm}</div>
      <div hidden={!isPhoneShown}>{phoneForm}</div>
      {emailForm !== null && phoneForm !== null && (
        <p className="mt-5 text-sm">
          <AppLink
            href={visitorAddress(path, { next, with: isPhoneSelected ? null : "phone" })}
            className="font-medium underline underline-offset-4"
          >
            {isPhoneSelected ? m.sign_in_use_email() : m.sign_in_use_phone()}
          </AppLink>
        </p>
      )}
    </>
  );
}
