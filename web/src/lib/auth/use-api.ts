import { useMemo } from "react";
import { type Api, openApi } from "../api";
import { useConfig } from "../config-context";
import { useAuth } from "./auth-context";

/** Returns the calls to our own endpoints, in the name of the signed-in user. */
export function useApi(): Api {
  const { client } = useAuth();
  const config = useConfig();
  return useMemo(() => openApi(config, client), [config, client]);
}
