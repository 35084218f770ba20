// Reads captured text messages from the mailbox.

export interface Text {
  id: string;
  to: string;
  body: string;
  /** The digits in the body. */
  code: string;
}

/** The newest text message to `phone` (digits without the plus sign); there must be more than `after`. */
export async function textTo(mailbox: string, phone: string, after = 0): Promise<Text> {
  // A message is captured before the request that asked for it is answered, so there is nothing to wait for.
  const found = await textsTo(mailbox, phone);
  const newest = found[0];
  if (newest === undefined || found.length <= after) throw new Error(`${String(found.length)} text messages to ${phone}, expected more than ${String(after)}`);
  return newest;
}

/** All text messages to `phone`, newest first. */
export async function textsTo(mailbox: string, phone: string): Promise<Text[]> {
  const answer = await fetch(`${mailbox}/portico/v1/texts`);
  const { texts } = (await answer.json()) as { texts: Omit<Text, "code">[] };
  return texts.filter(({ to }) => to === phone).map((text) => ({ ...text, code: /\b\d{6,10}\b/.exec(text.body)?.[0] ?? "" }));
}
