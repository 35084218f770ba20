import { FormNote, FormPage } from "../components/form-page";
import { TextLink } from "../components/text-link";
import { ForgotPasswordForm } from "../features/sign-in/forgot-password-form";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function ForgotPasswordPage() {
  usePageTitle(m.forgot_password_page());
  return (
    <FormPage title={m.forgot_password_title()} lead={m.forgot_password_lead()}>
      <ForgotPasswordForm />
      <FormNote>
        {m.forgot_password_remembered()} <TextLink href="/sign-in">{m.sign_in()}</TextLink>
      </FormNote>
    </FormPage>
  );
}
