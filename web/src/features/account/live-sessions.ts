import type { Session } from "@supabase/supabase-js";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useEffectEvent, useRef } from "react";
import type { Api } from "../../lib/api";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { type LiveTopic, openLiveTopic } from "../../lib/live-topic";
import { spaceRuns } from "../../lib/spaced-runs";
import { type DeviceSession, sessionsQuery } from "./sessions";

/** The shortest time between two loads of the list. */
const loadPauseMs = 500;

/** The differences between two loads of the list. */
export interface SessionChanges {
  begun: DeviceSession[];
  ended: DeviceSession[];
  /** The number of sessions now. */
  count: number;
}

/**
 * Loads the list again when the server reports that sessions of the account have begun or ended,
 * and calls `onChanged` with what is different. Without the realtime service it does nothing.
 */
export function useLiveSessions(api: Api, session: Session, onChanged: (changes: SessionChanges) => void): void {
  const { client } = useAuth();
  const config = useConfig();
  const queries = useQueryClient();
  const live = useRef<LiveTopic | null>(null);
  const report = useEffectEvent(onChanged);
  const userId = session.user.id;

  useEffect(() => {
    if (!config.realtime) return;
    const { queryKey } = sessionsQuery(api, client, userId);
    const load = spaceRuns(async () => {
      const before = queries.getQueryData(queryKey);
      await queries.invalidateQueries({ queryKey });
      const after = queries.getQueryData(queryKey);
      if (live.current !== topic || !before || !after) return;
      const changes = compareSessions(before, after);
      if (changes.begun.length > 0 || changes.ended.length > 0) report(changes);
    }, loadPauseMs);
    const topic = openLiveTopic(config, client, `portico:account:${userId}`, { onReady: load, onMessage: load });
    live.current = topic;
    return () => {
      live.current = null;
      topic.close();
    };
  }, [api, client, config, queries, userId]);

  const token = session.access_token;
  useEffect(() => {
    if (token !== "") live.current?.renewToken();
  }, [token]);
}

/** Returns the sessions that are only in one of two lists. */
export function compareSessions(before: DeviceSession[], after: DeviceSession[]): SessionChanges {
  const without = (some: DeviceSession[], others: DeviceSession[]) => {
    const ids = new Set(others.map(({ id }) => id));
    return some.filter(({ id }) => !ids.has(id));
  };
  return { begun: without(after, before), ended: without(before, after), count: after.length };
}
