import type { Session } from "@supabase/supabase-js";
import { useQuery } from "@tanstack/react-query";
import { Laptop, Smartphone } from "lucide-react";
import { useEffect, useEffectEvent, useLayoutEffect, useRef, useState } from "react";
import { RelativeTime } from "../../components/relative-time";
import { RichText } from "../../components/rich-text";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { Card } from "../../components/ui/card";
import { ConfirmDialog } from "../../components/ui/confirm-dialog";
import { SkeletonRow } from "../../components/ui/skeleton";
import type { Api } from "../../lib/api";
import { useAuth } from "../../lib/auth/auth-context";
import { classNames } from "../../lib/class-names";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";
import { describeDevice } from "./device";
import { type SessionChanges, useLiveSessions } from "./live-sessions";
import { type DeviceSession, lastSeenAt, sessionsQuery, useEndOtherSessions, useEndSession } from "./sessions";

/** This device and four others. */
const shortListLength = 5;

/**
 * The browsers and devices that are signed in, with buttons to end their sessions. Sign-ins and
 * sign-outs elsewhere are shown at once.
 */
export function SessionList({ api, session: own }: { api: Api; session: Session }) {
  const { client } = useAuth();
  const { data: sessions, error, isPending, refetch, isRefetching } = useQuery(sessionsQuery(api, client, own.user.id));
  const endOthers = useEndOtherSessions(client);
  const [isConfirming, setIsConfirming] = useState(false);
  const [status, setStatus] = useState("");
  const [showsAll, setShowsAll] = useState(false);
  const [newIds, setNewIds] = useState<ReadonlySet<string>>(new Set());
  const list = useRef<HTMLUListElement>(null);
  /** The sessions that this page ends, which has messages of its own for that. */
  const endedHere = useRef(new Set<string>());
  const shown = showsAll ? sessions : sessions?.slice(0, shortListLength);
  const others = sessions?.filter((session) => !session.current).length ?? 0;

  useLiveSessions(api, own, (changes) => {
    const ended = changes.ended.filter(({ id }) => !endedHere.current.has(id));
    if (changes.begun.length === 0 && ended.length === 0) return;
    setNewIds((before) => new Set([...before, ...changes.begun.map(({ id }) => id)]));
    setStatus(describeChanges({ ...changes, ended }));
  });

  useEffect(() => {
    // The button that was pressed is gone: the focus moves to the first session that it showed.
    if (showsAll) list.current?.children.item(shortListLength)?.querySelector("button")?.focus();
  }, [showsAll]);

  return (
    <Card
      title={m.sessions_title()}
      description={<span>{sessions ? m.sessions_count({ count: sessions.length }) : m.sessions_description()}</span>}
      aside={
        others > 0 && (
          <Button tone="secondary" size="sm" onClick={() => setIsConfirming(true)}>
            {m.sessions_end_others()}
          </Button>
        )
      }
    >
      {isPending && <ListSkeleton />}
      {error && (
        <Alert
          tone="danger"
          actions={
            <button type="button" className="font-medium underline" disabled={isRefetching} onClick={() => void refetch()}>
              {m.sessions_load_again()}
            </button>
          }
        >
          {m.sessions_not_loaded({ reason: describeError(error).message })}
        </Alert>
      )}
      {endOthers.error && (
        <Alert tone="danger" className="mb-3">
          {m.sessions_others_not_ended({ reason: describeError(endOthers.error).message })}
        </Alert>
      )}
      {shown && (
        <ul ref={list} tabIndex={-1} className="divide-y divide-line">
          {shown.map((session) => (
            <SessionRow
              key={session.id}
              session={session}
              isNew={newIds.has(session.id)}
              api={api}
              onEnd={() => endedHere.current.add(session.id)}
              onEnded={setStatus}
              onFocusLost={() => list.current?.focus()}
            />
          ))}
        </ul>
      )}
      {sessions && shown && shown.length < sessions.length && (
        <Button tone="secondary" size="sm" className="mt-3 w-full" onClick={() => setShowsAll(true)}>
          {m.sessions_show_all({ count: sessions.length })}
        </Button>
      )}
      <p role="status" className="sr-only">
        {status}
      </p>
      {isConfirming && (
        <ConfirmDialog
          title={m.sessions_end_others_title()}
          action={m.sessions_end_others()}
          isPending={endOthers.isPending}
          onClose={() => setIsConfirming(false)}
          onConfirm={() => {
            for (const { id } of sessions ?? []) endedHere.current.add(id);
            endOthers.mutate(undefined, {
              onSuccess: () => setStatus(m.sessions_others_ended()),
              onSettled: () => setIsConfirming(false),
            });
          }}
        >
          {m.sessions_end_others_text({ count: others })}
        </ConfirmDialog>
      )}
    </Card>
  );
}

/** Describes changes that were made elsewhere. */
function describeChanges({ begun, ended, count }: SessionChanges): string {
  const [only] = [...begun, ...ended];
  if (only === undefined || begun.length + ended.length > 1) return m.sessions_changed({ count });
  const device = describeDevice(only.user_agent).name;
  return begun.length === 1 ? m.session_begun({ device }) : m.session_ended({ device });
}

interface SessionRowProps {
  session: DeviceSession;
  /** It has begun since the page was opened. */
  isNew: boolean;
  api: Api;
  onEnd: () => void;
  onEnded: (text: string) => void;
  /** The row is about to be removed with the focus in it. */
  onFocusLost: () => void;
}

function SessionRow({ session, isNew, api, onEnd, onEnded, onFocusLost }: SessionRowProps) {
  const end = useEndSession(api);
  const row = useRef<HTMLLIElement>(null);
  const reportFocusLost = useEffectEvent(onFocusLost);
  const device = describeDevice(session.user_agent);
  const Icon = device.isHandheld ? Smartphone : Laptop;

  useLayoutEffect(() => {
    const element = row.current;
    return () => {
      if (element?.contains(document.activeElement)) reportFocusLost();
    };
  }, []);

  return (
    <li ref={row} className="flex items-center gap-x-4 py-3.5 first:pt-1 last:pb-0">
      <Icon aria-hidden className="size-5 shrink-0 text-soft" strokeWidth={1.75} />
      <div className="min-w-0 flex-1">
        <p className="flex flex-wrap items-center gap-x-2.5 font-medium">
          {device.name}
          {session.current && <Badge className="bg-accent-wash text-accent-strong">{m.session_this_device()}</Badge>}
          {isNew && <Badge className="bg-caution-wash text-caution">{m.session_new()}</Badge>}
        </p>
        <p className="text-sm text-soft">
          <RichText
            message={session.current ? m.session_signed_in : m.session_last_seen}
            inputs={{}}
            elements={{ time: () => <RelativeTime at={session.current ? session.created_at : lastSeenAt(session)} /> }}
          />
          {session.ip !== null && session.ip !== undefined && session.ip !== "" && <> · {session.ip}</>}
        </p>
        {end.error && (
          <p role="alert" className="text-sm text-danger">
            {describeError(end.error).message}
          </p>
        )}
      </div>
      {!session.current && (
        <Button
          tone="quiet"
          size="sm"
          isPending={end.isPending}
          className="-mr-3 shrink-0"
          aria-label={m.session_end_named({ device: device.name })}
          onClick={() => {
            onEnd();
            end.mutate(session.id, { onSuccess: () => onEnded(m.session_ended({ device: device.name })) });
          }}
        >
          {m.session_end()}
        </Button>
      )}
    </li>
  );
}

function Badge({ className, children }: { className: string; children: string }) {
  return <span className={classNames("rounded-full px-2 py-0.5 text-xs font-medium whitespace-nowrap", className)}>{children}</span>;
}

function ListSkeleton() {
  return (
    <div aria-busy="true" className="space-y-4 py-1">
      {[0, 1].map((row) => (
        <SkeletonRow key={row} />
      ))}
    </div>
  );
}
