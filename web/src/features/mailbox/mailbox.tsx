import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Inbox } from "lucide-react";
import { useState } from "react";
import { RelativeTime } from "../../components/relative-time";
import { RichText } from "../../components/rich-text";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { Skeleton } from "../../components/ui/skeleton";
import { classNames } from "../../lib/class-names";
import * as m from "../../paraglide/messages";
import { MessageFrame } from "./message-frame";
import { deleteMessages, emailQuery, emailsQuery, type EmailSummary, mailboxKey, type TextMessage, textsQuery } from "./messages";
import { useLiveMailbox } from "./use-live-mailbox";

/** An email or a text message, as one row of the list. */
type MailboxRow = { id: string; to: string; title: string; snippet: string; at: Date; text: TextMessage | null };

/** The captured messages of the mailbox at `url`. */
export function Mailbox({ url }: { url: string }) {
  const isLive = useLiveMailbox(url);
  const emails = useQuery(emailsQuery(url, isLive));
  const texts = useQuery(textsQuery(url, isLive));
  const [selectedId, setSelectedId] = useState<string | null>(null);
  const queries = useQueryClient();
  const clear = useMutation({
    mutationFn: () => deleteMessages(url),
    onSettled: () => queries.invalidateQueries({ queryKey: mailboxKey }),
  });
  const rows = [...(emails.data?.messages ?? []).map(rowOfEmail), ...(texts.data ?? []).map(rowOfText)].toSorted(
    (a, b) => b.at.getTime() - a.at.getTime(),
  );
  const shown = rows.find(({ id }) => id === selectedId) ?? rows[0];
  const error = emails.error ?? texts.error ?? clear.error;

  return (
    <div className="flex flex-1 flex-col py-8">
      <div className="flex flex-wrap items-center justify-between gap-4">
        <div>
          <h1 className="text-3xl">{m.mailbox_title()}</h1>
          <p className="mt-1 text-soft">{m.mailbox_lead()}</p>
        </div>
        {rows.length > 0 && (
          <Button tone="secondary" size="sm" isPending={clear.isPending} onClick={() => clear.mutate()}>
            {m.mailbox_empty()}
          </Button>
        )}
      </div>
      {error && (
        <Alert tone="danger" className="mt-6">
          {m.mailbox_unreachable({ url })}
        </Alert>
      )}
      {emails.isPending && <Skeleton className="mt-8 h-80 w-full" />}
      {emails.data && rows.length === 0 && <EmptyMailbox />}
      {shown && (
        <div className="mt-8 grid items-start gap-6 md:grid-cols-[minmax(0,20rem)_minmax(0,1fr)]">
          <ul aria-label={m.mailbox_list()} className="max-h-[70dvh] divide-y divide-line overflow-y-auto rounded border border-line bg-surface">
            {rows.map((row) => (
              <li key={row.id}>
                <MessageRow row={row} isShown={row.id === shown.id} onSelected={() => setSelectedId(row.id)} />
              </li>
            ))}
          </ul>
          {shown.text === null ? <EmailView url={url} id={shown.id} /> : <TextView text={shown.text} />}
        </div>
      )}
    </div>
  );
}

function rowOfEmail({ ID, To, Subject, Snippet, Created }: EmailSummary): MailboxRow {
  const to = To.map(({ Address }) => Address).join(", ");
  return { id: ID, to, title: Subject, snippet: Snippet, at: Created, text: null };
}

function rowOfText(text: TextMessage): MailboxRow {
  return { id: text.id, to: `+${text.to}`, title: m.mailbox_text_message(), snippet: text.body, at: text.received_at, text };
}

function MessageRow({ row, isShown, onSelected }: { row: MailboxRow; isShown: boolean; onSelected: () => void }) {
  return (
    <button
      type="button"
      onClick={onSelected}
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
    <article aria-label={m.mailbox_text_message()} className="min-w-0 rounded border border-line bg-surface p-5 sm:p-6">
      <h2 className="text-xl">{m.mailbox_text_message()}</h2>
      <p className="mt-1 mb-5 text-sm text-soft">
        <RichText
          message={m.mailbox_to}
          inputs={{ recipients: `+${text.to}` }}
          elements={{ time: () => <RelativeTime at={text.received_at} /> }}
        />
      </p>
      <p className="w-fit max-w-md rounded bg-accent-wash px-4 py-3 whitespace-pre-wrap">{text.body}</p>
    </article>
  );
}

function EmailView({ url, id }: { url: string; id: string }) {
  const { data: email, error } = useQuery(emailQuery(url, id));
  if (error) return <Alert tone="danger">{m.mailbox_message_unreadable()}</Alert>;
  if (!email) return <Skeleton className="h-80 w-full" />;
  const recipients = email.To.map(({ Address }) => Address).join(", ");
  const elements = { time: () => <RelativeTime at={email.Date} /> };
  return (
    <article aria-label={email.Subject} className="min-w-0 rounded border border-line bg-surface p-5 sm:p-6">
      <h2 className="text-xl [overflow-wrap:anywhere]">{email.Subject}</h2>
      <p className="mt-1 mb-5 text-sm text-soft [overflow-wrap:anywhere]">
        {email.From ? (
          <RichText message={m.mailbox_from_to} inputs={{ sender: email.From.Address, recipients }} elements={elements} />
        ) : (
          <RichText message={m.mailbox_to} inputs={{ recipients }} elements={elements} />
        )}
      </p>
      {email.HTML === "" ? (
        <pre className="font-sans whitespace-pre-wrap">{email.Text}</pre>
      ) : (
        <MessageFrame html={email.HTML} title={m.mailbox_message_frame({ subject: email.Subject })} />
      )}
    </article>
  );
}

function EmptyMailbox() {
  return (
    <div className="m-auto py-20 text-center">
      <Inbox aria-hidden className="mx-auto size-9 text-accent" strokeWidth={1.5} />
      <p className="mt-4 font-medium">{m.mailbox_nothing_title()}</p>
      <p className="mt-1 text-sm text-soft">{m.mailbox_nothing_text()}</p>
    </div>
  );
}
