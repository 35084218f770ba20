import { Button } from "../components/ui/button";
import { AppLink } from "../lib/navigation";
import { usePageTitle } from "../lib/use-page-title";

export function NotFoundPage() {
  usePageTitle("Page not found");
  return (
    <section className="m-auto max-w-md py-20 text-center">
      <p aria-hidden className="text-sm font-medium text-accent">
        404
      </p>
      <h1 className="mt-2 text-3xl">There is no door here</h1>
      <p className="mt-4 text-soft">The page may have moved, or the address has a slip in it.</p>
      <Button className="mt-8" asChild>
        <AppLink href="/">Go to the start page</AppLink>
      </Button>
    </section>
  );
}
