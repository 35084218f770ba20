import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Inbox } from "lucide-react";
import { useState } from "react";
import { RelativeTime } from "../components/relative-time";
import { Alert } from "../components/ui/alert";
import { Button } from "../components/ui/button";
import { Skeleton } from "../components/ui/skeleton";
import { MessageFrame } from "../features/mailbox/message-frame";
import { deleteMessages, messageQuery, messagesQuery, type Summary } from "../features/mailbox/messages";
import { classNames } from "../lib/class-names";
import { useConfig } from "../lib/config-context";
import { usePageTitle } from "../lib/use-page-title";
import { NotFoundPage } from "./not-found";

/** The captured mail of a development server, live. There is no such page in production. */
export function MailboxPage() {
  const { mailbox } = useConfig();
  return mailbox === null ? <NotFoundPage /> : <Mailbox mailbox={mailbox} />;
}

function Mailbox({ mailbox }: { mailbox: string }) {
  const { data, error, isPending } = useQuery(messagesQuery(mailbox));
  const [chosen, setChosen] = useState<string | null>(null);
  const queries = useQueryClient();
  const clear = useMutation({
    mutationFn: () => deleteMessages(mailbox),
    onSettled: () => queries.invalidateQueries({ queryKey: ["mailbox"] }),
  });
  usePageTitle("Mailbox");
  const messages = data?.messages ?? [];
  const shown = messages.find((message) => message.ID === chosen) ?? messages[0];

  return (
    <div className="flex flex-1 flex-col py-8">
      <div className="flex flex-wrap items-center justify-between gap-4">
        <div>
          <h1 className="text-3xl">Mailbox</h1>
          <p className="mt-1 text-soft">Every mail this development server would have sent.</p>
        </div>
        {messages.length > 0 && (
          <Button tone="secondary" size="sm" isPending={clear.isPending} onClick={() => clear.mutate()}>
            Empty the mailbox
          </Button>
        )}
      </div>
      {error && (
        <Alert tone="danger" className="mt-6">
          The mailbox at {mailbox} does not answer. It is asked again every two seconds.
        </Alert>
      )}
      {isPending && <Skeleton className="mt-8 h-80 w-full" />}
      {data && messages.length === 0 && <Empty />}
      {shown && (
        <div className="mt-8 grid items-start gap-6 md:grid-cols-[minmax(0,20rem)_minmax(0,1fr)]">
          <ul aria-label="Messages" className="max-h-[70dvh] divide-y divide-line overflow-y-auto rounded border border-line bg-surface">
            {messages.map((message) => (
              <li key={message.ID}>
                <MessageRow message={message} isShown={message.ID === shown.ID} onChosen={() => setChosen(message.ID)} />
              </li>
            ))}
          </ul>
          <MessageView mailbox={mailbox} id={shown.ID} />
        </div>
      )}
    </div>
  );
}

function MessageRow({ message, isShown, onChosen }: { message: Summary; isShown: boolean; onChosen: () => void }) {
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
        <span className="truncate text-sm font-medium">{message.To.map((to) => to.Address).join(", ")}</span>
        <span className="shrink-0 text-xs text-soft">
          <RelativeTime at={message.Created} />
        </span>
      </span>
      <span className="mt-0.5 block truncate text-sm">{message.Subject}</span>
      <span className="block truncate text-xs text-soft">{message.Snippet}</span>
    </button>
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
      <p className="mt-1 text-sm text-soft">Create an account or ask for a code; the mail appears here by itself.</p>
    </div>
  );
}
