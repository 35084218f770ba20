import { FormNote, FormPage } from "../components/form-page";
import { VisitorsOnly } from "../components/guards";
import { TextLink } from "../components/text-link";
import { Alert } from "../components/ui/alert";
import { PhoneForm } from "../features/sign-in/phone-form";
import { SignInOptions } from "../features/sign-in/sign-in-options";
import { SignUpForm } from "../features/sign-in/sign-up-form";
import { useSignInMethods } from "../lib/auth/sign-in-methods";
import { visitorAddress } from "../lib/paths";
import { usePageTitle } from "../lib/use-page-title";
import { useSearchParams, visitorSearch } from "../lib/use-search-params";
import * as m from "../paraglide/messages";

export default function SignUpPage() {
  const { next, with: contact } = useSearchParams(visitorSearch);
  const { methods } = useSignInMethods();
  usePageTitle(m.sign_up_page());
  return (
    <VisitorsOnly next={next}>
      <FormPage title={m.sign_up_title()}>
        {methods.allowsSignUp ? (
          <SignInOptions
            path="/sign-up"
            next={next}
            emailForm={<SignUpForm next={next} />}
            phoneForm={<PhoneForm kind="phone-signup" next={next} signUpHref={null} />}
          />
        ) : (
          <Alert tone="info">{m.sign_up_closed()}</Alert>
        )}
        <FormNote>
          {m.sign_up_have_account()}{" "}
          <TextLink href={visitorAddress("/sign-in", { next, with: contact })}>{m.sign_in()}</TextLink>
        </FormNote>
      </FormPage>
    </VisitorsOnly>
  );
}
