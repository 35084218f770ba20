import { FormNote, FormPage } from "../components/form-page";
import { VisitorsOnly } from "../components/guards";
import { TextLink } from "../components/text-link";
import { PhoneForm } from "../features/sign-in/phone-form";
import { SignInForm } from "../features/sign-in/sign-in-form";
import { SignInOptions } from "../features/sign-in/sign-in-options";
import { useSignInMethods } from "../lib/auth/sign-in-methods";
import { visitorAddress } from "../lib/paths";
import { usePageTitle } from "../lib/use-page-title";
import { useSearchParams, visitorSearch } from "../lib/use-search-params";
import * as m from "../paraglide/messages";

export default function SignInPage() {
  const { next, with: contact } = useSearchParams(visitorSearch);
  const { allowsSignUp } = useSignInMethods().methods;
  const signUpByPhone = visitorAddress("/sign-up", { next, with: "phone" });
  usePageTitle(m.sign_in_page());
  return (
    <VisitorsOnly next={next}>
      <FormPage title={m.sign_in_title()}>
        <SignInOptions
          path="/sign-in"
          offersPasskey
          next={next}
          emailForm={<SignInForm next={next} />}
          phoneForm={<PhoneForm kind="phone" next={next} signUpHref={allowsSignUp ? signUpByPhone : null} />}
        />
        {allowsSignUp && (
          <FormNote>
            {m.new_here()}{" "}
            <TextLink href={visitorAddress("/sign-up", { next, with: contact })}>{m.create_an_account()}</TextLink>
          </FormNote>
        )}
      </FormPage>
    </VisitorsOnly>
  );
}
