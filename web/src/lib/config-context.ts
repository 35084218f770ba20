import { createContext, useContext } from "react";
import type { Config } from "./config";

export const ConfigContext = createContext<Config | null>(null);

export function useConfig(): Config {
  const config = useContext(ConfigContext);
  if (!config) throw new Error("No ConfigContext");
  return config;
}
