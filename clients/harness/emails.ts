// Reads captured emails through the mailbox's Mailpit API, as existing test suites do.

interface EmailSummary {
  ID: string;
  Subject: string;
  To: { Address: string }[];
}

export interface Email {
  ID: string;
  Subject: string;
  HTML: string;
  Text: string;
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Waits for more than `after` emails to `address`, and returns the newest. */
export async function emailTo(mailbox: string, address: string, after = 0): Promise<Email> {
  // The API cannot wait, so the list is read until the email is there.
  for (let attempt = 0; attempt < 600; attempt += 1) {
    const found = await emailsTo(mailbox, address);
    if (found.length > after) {
      const response = await fetch(`${mailbox}/api/v1/message/${found[0]!.ID}`);
      return (await response.json()) as Email;
    }
    await pause(100);
  }
  throw new Error(`no email to ${address} arrived`);
}

/** Waits for an email with a subject, whatever others arrive beside it. */
export async function emailAbout(mailbox: string, address: string, subject: string): Promise<Email> {
  for (let attempt = 0; attempt < 600; attempt += 1) {
    const found = (await emailsTo(mailbox, address)).find((email) => email.Subject === subject);
    if (found !== undefined) {
      const response = await fetch(`${mailbox}/api/v1/message/${found.ID}`);
      return (await response.json()) as Email;
    }
    await pause(100);
  }
  throw new Error(`no email "${subject}" to ${address} arrived`);
}

export async function emailsTo(mailbox: string, address: string): Promise<EmailSummary[]> {
  const response = await fetch(`${mailbox}/api/v1/search?query=${encodeURIComponent(`to:"${address}"`)}`);
  const { messages } = (await response.json()) as { messages: EmailSummary[] };
  return messages;
}

/** Returns the link in an email to the server's own `/verify`. */
export function linkIn(email: Email): string {
  const link = /href="([^"]*\/auth\/v1\/verify[^"]*)"/.exec(email.HTML)?.[1];
  if (link === undefined) throw new Error(`no link in ${email.HTML}`);
  return link.replaceAll("&amp;", "&");
}

/** Returns the code in an email. */
export function codeIn(email: Email): string {
  const code = /\b(\d{6,10})\b/.exec(email.Text)?.[1];
  if (code === undefined) throw new Error(`no code in ${email.Text}`);
  return code;
}
