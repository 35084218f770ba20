// Reads captured text messages from the mailbox.

export interface TextMessage {
  id: string;
  to: string;
  body: string;
  /** The digits in the body. */
  code: string;
}

/**
 * Returns the newest text message to `phone` (digits without the plus sign); there must be more
 * than `after`.
 */
export async function textTo(mailbox: string, phone: string, after = 0): Promise<TextMessage> {
  // A message is captured before its request returns, so there is nothing to wait for.
  const found = await textsTo(mailbox, phone);
  const newest = found[0];
  if (newest === undefined || found.length <= after) throw new Error(`${String(found.length)} text messages to ${phone}, expected more than ${String(after)}`);
  return newest;
}

/** Returns all text messages to `phone`, newest first. */
export async function textsTo(mailbox: string, phone: string): Promise<TextMessage[]> {
  const response = await fetch(`${mailbox}/portico/v1/texts`);
  const { texts } = (await response.json()) as { texts: Omit<TextMessage, "code">[] };
  return texts.filter(({ to }) => to === phone).map((text) => ({ ...text, code: /\b\d{6,10}\b/.exec(text.body)?.[0] ?? "" }));
}
