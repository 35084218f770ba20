import { createContext, useContext } from "react";

/**
 * The page that is shown: its own path and query parameters, which are those of the browser once
 * its code is loaded, and the function that a page calls when it appears.
 */
export interface ShownAddress {
  path: string;
  search: string;
  onShown: (pattern: string) => void;
}

export const ShownAddressContext = createContext<ShownAddress | null>(null);

export function useShownAddress(): ShownAddress {
  const address = useContext(ShownAddressContext);
  if (!address) throw new Error("No ShownAddressContext");
  return address;
}
