import type { ReactNode } from "react";
import { addressForPasskeys, supportsPasskeys } from "../../lib/auth/passkey-support";
import { useSignInMethods } from "../../lib/auth/sign-in-methods";
import type { AppAddress, PagePath } from "../../lib/paths";
import * as m from "../../paraglide/messages";
import { ContactSwitch } from "./contact-switch";
import { PasskeySignIn } from "./passkey-sign-in";
import { ProviderButtons } from "./provider-buttons";

/** The sign-in methods that the server offers: the buttons, then the forms. */
export function SignInOptions({
  path,
  next,
  emailForm,
  phoneForm,
  offersPasskey = false,
}: {
  path: PagePath;
  next: AppAddress | null;
  emailForm: ReactNode;
  phoneForm: ReactNode;
  offersPasskey?: boolean;
}) {
  const { methods } = useSignInMethods();
  const hasPasskey = offersPasskey && methods.passkeys && supportsPasskeys() && addressForPasskeys() === null;
  return (
    <>
      <ProviderButtons next={next} />
      {hasPasskey && <PasskeySignIn />}
      {(methods.email || methods.phone) && (
        <>
          {(hasPasskey || methods.google || methods.otherProviders.length > 0) && <OrDivider />}
          <ContactSwitch
            path={path}
            next={next}
            emailForm={methods.email ? emailForm : null}
            phoneForm={methods.phone ? phoneForm : null}
          />
        </>
      )}
    </>
  );
}

function OrDivider() {
  return (
    <div className="my-6 flex items-center gap-4 text-sm text-soft">
      <span className="h-px flex-1 bg-line" />
      {m.or()}
      <span className="h-px flex-1 bg-line" />
    </div>
  );
}
