import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { mailboxKey } from "./messages";

/** What the mailbox tells of: a mail or text message that came in, a change by somebody else, events that were missed. */
const events = ["mail", "text", "changed", "reset"];
/** How long until a stream that ended for good is opened anew. */
const reopenAfterMs = 10_000;

/**
 * Reads the lists again whenever the mailbox says that something happened. False while it can not say so, and the lists
 * have to be asked for now and then.
 */
export function useLiveMailbox(mailbox: string): boolean {
  const queries = useQueryClient();
  const [isLive, setIsLive] = useState(false);

  useEffect(() => {
    if (typeof EventSource === "undefined") return;
    const readAgain = () => void queries.invalidateQueries({ queryKey: mailboxKey });
    let timer: number | undefined;
    let stream: EventSource;

    function listen() {
      stream = new EventSource(`${mailbox}/api/v1/events`);
      stream.addEventListener("open", () => {
        setIsLive(true);
        // What came in before the stream was there has to be asked for.
        readAgain();
      });
      for (const event of events) stream.addEventListener(event, readAgain);
      stream.addEventListener("error", () => {
        setIsLive(false);
        // The browser connects again by itself, unless the answer was no stream at all.
        if (stream.readyState === EventSource.CLOSED) timer = window.setTimeout(listen, reopenAfterMs);
      });
    }

    listen();
    return () => {
      window.clearTimeout(timer);
      stream.close();
    };
  }, [mailbox, queries]);

  return isLive;
}
