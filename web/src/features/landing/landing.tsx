import { Fingerprint, MonitorSmartphone, ShieldCheck } from "lucide-react";
import { Colonnade } from "../../components/colonnade";
import { GoogleButton } from "../../components/google-button";
import { TextLink } from "../../components/text-link";
import { ButtonLink } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import * as m from "../../paraglide/messages";

const highlights = [
  {
    icon: Fingerprint,
    title: m.landing_methods_title,
    text: m.landing_methods_text,
  },
  {
    icon: MonitorSmartphone,
    title: m.landing_devices_title,
    text: m.landing_devices_text,
  },
  {
    icon: ShieldCheck,
    title: m.landing_privacy_title,
    text: m.landing_privacy_text,
  },
];

/** The description of this application, and the sign-in. */
export function Landing() {
  const { brand } = useConfig();
  const isPortico = brand.name === "Portico";
  return (
    <>
      <div className="grid flex-1 items-center gap-x-16 gap-y-12 py-8 lg:grid-cols-[1fr_minmax(0,30rem)] lg:py-10">
        <div className="max-w-xl">
          <h1 className="text-[clamp(2.5rem,1.6rem+4vw,4.25rem)] leading-[1.02] tracking-[-0.035em]">
            {isPortico ? m.landing_title_portico() : m.landing_title({ brand: brand.name })}
          </h1>
          <p className="mt-6 max-w-md text-lg text-soft">
            {isPortico ? m.landing_lead_portico() : m.landing_lead()}
          </p>
          <NextStep />
        </div>
        <div className="h-56 overflow-hidden rounded border border-line sm:h-80 lg:h-[34rem]">
          <Colonnade />
        </div>
      </div>
      <ul className="grid gap-8 border-t border-line pt-10 sm:grid-cols-3">
        {highlights.map(({ icon: Icon, title, text }) => (
          <li key={title()}>
            <Icon aria-hidden className="size-5 text-accent" strokeWidth={1.75} />
            <h2 className="mt-3 text-base">{title()}</h2>
            <p className="mt-1.5 text-sm text-soft">{text()}</p>
          </li>
        ))}
      </ul>
    </>
  );
}

/** The sign-in, or the link to the account. Its space is held until the session is known. */
function NextStep() {
  const { user, isUndecided } = useAuth();
  return (
    <div className="mt-9 min-h-35 sm:min-h-22">
      {!isUndecided &&
        (user ? (
          <ButtonLink href="/app">{m.open_your_account()}</ButtonLink>
        ) : (
          <>
            <div className="flex flex-col gap-3 sm:flex-row">
              <GoogleButton className="sm:min-w-60" />
              <ButtonLink href="/sign-in">{m.sign_in()}</ButtonLink>
            </div>
            <p className="mt-4 text-sm text-soft">
              {m.new_here()} <TextLink href="/sign-up">{m.create_an_account()}</TextLink>
            </p>
          </>
        ))}
    </div>
  );
}
