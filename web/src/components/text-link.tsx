import type { ComponentProps } from "react";
import { AppLink } from "../lib/navigation";

/** A link inside or below a text. */
export function TextLink(props: ComponentProps<typeof AppLink>) {
  return <AppLink className="font-medium text-ink underline underline-offset-4" {...props} />;
}
