import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { mailboxKey } from "./messages";

/**
 * The mailbox's events: a new email or text message, a change by another page, events that were
 * missed.
 */
const events = ["mail", "text", "changed", "reset"];
/** The time until a stream that has closed for good is opened again. */
const reopenMs = 10_000;

/**
 * Reads the lists again at each event of the mailbox. Returns false while there is no stream of
 * events, and the lists have to be read at an interval.
 */
export function useLiveMailbox(mailbox: string): boolean {
  const queries = useQueryClient();
  const [isLive, setIsLive] = useState(false);

  useEffect(() => {
    if (typeof EventSource === "undefined") return;
    const readAgain = () => void queries.invalidateQueries({ queryKey: mailboxKey });
    let timer: number | undefined;
    let stream: EventSource;

    function openStream() {
      stream = new EventSource(`${mailbox}/api/v1/events`);
      stream.addEventListener("open", () => {
        setIsLive(true);
        // There was no event for the messages that arrived before the stream was open.
        readAgain();
      });
      for (const event of events) stream.addEventListener(event, readAgain);
      stream.addEventListener("error", () => {
        setIsLive(false);
        // The browser reconnects by itself, unless the response was not a stream.
        if (stream.readyState === EventSource.CLOSED) timer = window.setTimeout(openStream, reopenMs);
      });
    }

    openStream();
    return () => {
      window.clearTimeout(timer);
      stream.close();
    };
  }, [mailbox, queries]);

  return isLive;
}
