import { useEffect } from "react";
import * as m from "../paraglide/messages";
import { useConfig } from "./config-context";

/** Sets the title of the browser's tab: the page's and the brand's name. */
export function usePageTitle(title: string | null): void {
  const { brand } = useConfig();
  useEffect(() => {
    document.title = title === null ? brand.name : m.page_title({ title, brand: brand.name });
  }, [title, brand.name]);
}
