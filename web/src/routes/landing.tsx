import { Landing } from "../features/landing/landing";
import { usePageTitle } from "../lib/use-page-title";

export default function LandingPage() {
  usePageTitle(null);
  return <Landing />;
}
