import { useEffect } from "react";
import { useConfig } from "./config-context";

export function usePageTitle(title: string | null): void {
  const { brand } = useConfig();
  useEffect(() => {
    document.title = title === null ? brand.name : `${title} · ${brand.name}`;
  }, [title, brand.name]);
}
