import { ButtonLink } from "../components/ui/button";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function NotFoundPage() {
  usePageTitle(m.not_found_page());
  return (
    <section className="m-auto max-w-md py-20 text-center">
      <p aria-hidden className="text-sm font-medium text-accent">
        {m.not_found_status()}
      </p>
      <h1 className="mt-2 text-3xl">{m.not_found_title()}</h1>
      <p className="mt-4 text-soft">{m.not_found_text()}</p>
      <ButtonLink className="mt-8" href="/">
        {m.go_to_start_page()}
      </ButtonLink>
    </section>
  );
}
