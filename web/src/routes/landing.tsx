import { Fingerprint, MonitorSmartphone, ShieldCheck } from "lucide-react";
import { Colonnade } from "../components/colonnade";
import { Button } from "../components/ui/button";
import { useAuth } from "../lib/auth/auth-context";
import { GoogleButton } from "../components/google-button";
import { useConfig } from "../lib/config-context";
import { AppLink } from "../lib/navigation";
import { usePageTitle } from "../lib/use-page-title";

const promises = [
  {
    icon: Fingerprint,
    title: "Your way in",
    text: "Google, a password, or a code from your inbox. Whichever you pick, it is one account.",
  },
  {
    icon: MonitorSmartphone,
    title: "Every device in sight",
    text: "See each browser that is signed in, since when, and end any of them with one click.",
  },
  {
    icon: ShieldCheck,
    title: "Quiet by design",
    text: "Nothing you click or type is recorded. If your browser asks not to be counted, it isn’t.",
  },
];

export function LandingPage() {
  const { brand } = useConfig();
  usePageTitle(null);
  return (
    <>
      <div className="grid flex-1 items-center gap-x-16 gap-y-12 py-8 lg:grid-cols-[1fr_minmax(0,30rem)] lg:py-10">
        <div className="max-w-xl">
          <h1 className="text-[clamp(2.5rem,1.6rem+4vw,4.25rem)] leading-[1.02] tracking-[-0.035em]">
            Come in. Your account is&nbsp;ready.
          </h1>
          <p className="mt-6 max-w-md text-lg text-soft">
            {brand.name} is one calm place for your account: sign in once, pick up where you left off, and always know
            who else is in.
          </p>
          <WayIn />
        </div>
        <div className="h-56 overflow-hidden rounded border border-line sm:h-80 lg:h-[34rem]">
          <Colonnade />
        </div>
      </div>
      <ul className="grid gap-8 border-t border-line pt-10 sm:grid-cols-3">
        {promises.map(({ icon: Icon, title, text }) => (
          <li key={title}>
            <Icon aria-hidden className="size-5 text-accent" strokeWidth={1.75} />
            <h2 className="mt-3 text-base">{title}</h2>
            <p className="mt-1.5 text-sm text-soft">{text}</p>
          </li>
        ))}
      </ul>
    </>
  );
}

/** The one thing to do next; its place is kept until it is known who is here. */
function WayIn() {
  const { user, isUndecided } = useAuth();
  return (
    <div className="mt-9 min-h-35 sm:min-h-22">
      {!isUndecided &&
        (user ? (
          <Button asChild>
            <AppLink href="/app">Open your account</AppLink>
          </Button>
        ) : (
          <>
            <div className="flex flex-col gap-3 sm:flex-row">
              <GoogleButton className="sm:min-w-60" />
              <Button asChild>
                <AppLink href="/sign-in">Sign in</AppLink>
              </Button>
            </div>
            <p className="mt-4 text-sm text-soft">
              New here?{" "}
              <AppLink href="/sign-up" className="font-medium text-ink underline underline-offset-4">
                Create an account
              </AppLink>
            </p>
          </>
        ))}
    </div>
  );
}
