import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Inbox } from "lucide-react";
import { useState } from "react";
import { RelativeTime } from "../components/relative-time";
import { Alert } from "../components/ui/alert";
import { Button } from "../components/ui/button";
import { Skeleton } from "../components/ui/skeleton";
import { MessageFrame } from "../features/mailbox/message-frame";
import {
  deleteMessages,
  mailboxKey,
  messageQuery,
  messagesQuery,
  type Summary,
  type TextMessage,
  textsQuery,
} from "../features/mailbox/messages";
import { useLiveMailbox } from "../features/mailbox/use-live-mailbox";
import { classNames } from "../lib/class-names";
import { useConfig } from "../lib/config-context";
import { usePageTitle } from "../lib/use-page-title";
import { NotFoundPage } from "./not-found";

/** The captured messages of a development server, live. There is no such page in production. */
export function MailboxPage() {
  const { mailbox } = useConfig();
  return mailbox === null ? <NotFoundPage /> : <Mailbox mailbox={mailbox} />;
}

/** A mail or a text message, as one row of the list. */
type Row = { id: string; to: string; title: string; snippet: string; at: Date; text: TextMessage | null };

function Mailbox({ mailbox }: { mailbox: string }) {
  const isLive = useLiveMailbox(mailbox);
  const mails = useQuery(messagesQuery(mailbox, isLive));
  const texts = useQuery(textsQuery(mailbox, isLive));
  const [chosen, setChosen] = useState<string | null>(null);
  const queries = useQueryClient();
  const clear = useMutation({
    mutationFn: () => deleteMessages(mailbox),
    onSettled: () => queries.invalidateQueries({ queryKey: mailboxKey }),
  });
  usePageTitle("Mailbox");
  const rows = [...(mails.data?.messages ?? []).map(rowOfMail), ...(texts.data ?? []).map(rowOfText)].toSorted(
    (a, b) => b.at.getTime() - a.at.getTime(),
  );
  const shown = rows.find(({ id }) => id === chosen) ?? rows[0];
  const error = mails.error ?? texts.error ?? clear.error;

  return (
    <div className="flex flex-1 flex-col py-8">
      <div className="flex flex-wrap items-center justify-between gap-4">
        <div>
          <h1 className="text-3xl">Mailbox</h1>
          <p className="mt-1 text-soft">Every mail and text message that this development server would have sent.</p>
        </div>
        {rows.length > 0 && (
          <Button tone="secondary" size="sm" isPending={clear.isPending} onClick={() => clear.mutate()}>
            Empty the mailbox
          </Button>
        )}
      </div>
      {error && (
        <Alert tone="danger" className="mt-6">
          The mailbox at {mailbox} does not answer. It is asked again every few seconds.
        </Alert>
      )}
      {mails.isPending && <Skeleton className="mt-8 h-80 w-full" />}
      {mails.data && rows.length === 0 && <Empty />}
      {shown && (
        <div className="mt-8 grid items-start gap-6 md:grid-cols-[minmax(0,20rem)_minmax(0,1fr)]">
          <ul aria-label="Messages" className="max-h-[70dvh] divide-y divide-line overflow-y-auto rounded border border-line bg-surface">
            {rows.map((row) => (
              <li key={row.id}>
                <MessageRow row={row} isShown={row.id === shown.id} onChosen={() => setChosen(row.id)} />
              </li>
            ))}
          </ul>
          {shown.text === null ? <MessageView mailbox={mailbox} id={shown.id} /> : <TextView text={shown.text} />}
        </div>
      )}
    </div>
  );
}

function rowOfMail({ ID, To, Subject, Snippet, Created }: Summary): Row {
  const to = To.map(({ Address }) => Address).join(", ");
  return { id: ID, to, title: Subject, snippet: Snippet, at: Created, text: null };
}

function rowOfText(text: TextMessage): Row {
  return { id: text.id, to: `+${text.to}`, title: "Text message", snippet: text.body, at: text.received_at, text };
}

function MessageRow({ row, isShown, onChosen }: { row: Row; isShown: boolean; onChosen: () => void }) {
  return (
    <button
      type="button"
      onClick={onChosen}
      aria-current={isShown}
      className={classNames(
        "block w-full px-4 py-3 text-left transition-colors duration-150",
        isShown ? "bg-accent-wash" : "hover:bg-sunken",
      )}
    >
      <span className="flex items-baseline justify-between gap-3">
        <span className="truncate text-sm font-medium">{row.to}</span>
        <span className="shrink-0 text-xs text-soft">
          <RelativeTime at={row.at} />
        </span>
      </span>
      <span className="mt-0.5 block truncate text-sm">{row.title}</span>
      <span className="block truncate text-xs text-soft">{row.snippet}</span>
    </button>
  );
}

function TextView({ text }: { text: TextMessage }) {
  return (
    <article aria-label="Text message" className="min-w-0 rounded border border-line bg-surface p-5 sm:p-6">
      <h2 className="text-xl">Text message</h2>
      <p className="mt-1 mb-5 text-sm text-soft">
        to +{text.to} · <RelativeTime at={text.received_at} />
      </p>
      <p className="w-fit max-w-md rounded bg-accent-wash px-4 py-3 whitespace-pre-wrap">{text.body}</p>
    </article>
  );
}

function MessageView({ mailbox, id }: { mailbox: string; id: string }) {
  const { data: message, error } = useQuery(messageQuery(mailbox, id));
  if (error) return <Alert tone="danger">This message could not be read. It may have been deleted meanwhile.</Alert>;
  if (!message) return <Skeleton className="h-80 w-full" />;
  return (
    <article aria-label={message.Subject} className="min-w-0 rounded border border-line bg-surface p-5 sm:p-6">
      <h2 className="text-xl [overflow-wrap:anywhere]">{message.Subject}</h2>
      <p className="mt-1 mb-5 text-sm text-soft [overflow-wrap:anywhere]">
        {message.From && <>From {message.From.Address} </>}
        to {message.To.map((to) => to.Address).join(", ")} · <RelativeTime at={message.Date} />
      </p>
      {message.HTML === "" ? (
        <pre className="font-sans whitespace-pre-wrap">{message.Text}</pre>
      ) : (
        <MessageFrame html={message.HTML} title={`The message “${message.Subject}”`} />
      )}
    </article>
  );
}

function Empty() {
  return (
    <div className="m-auto py-20 text-center">
      <Inbox aria-hidden className="mx-auto size-9 text-accent" strokeWidth={1.5} />
      <p className="mt-4 font-medium">Nothing here yet</p>
      <p className="mt-1 text-sm text-soft">Create an account or ask for a code; it appears here by itself.</p>
    </div>
  );
}
