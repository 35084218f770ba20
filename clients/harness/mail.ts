// Reads captured mail through the mailbox's Mailpit API, as existing test suites do.

interface Listed {
  ID: string;
  Subject: string;
  To: { Address: string }[];
}

export interface Mail {
  ID: string;
  Subject: string;
  HTML: string;
  Text: string;
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** The newest mail to `address`, waited for; `after` skips as many older ones. */
export async function mailTo(mailbox: string, address: string, after = 0): Promise<Mail> {
  // The API has no way to wait, so this asks again and again until the mail is there.
  for (let attempt = 0; attempt < 600; attempt += 1) {
    const found = await mailsTo(mailbox, address);
    if (found.length > after) {
      const answer = await fetch(`${mailbox}/api/v1/message/${found[0]!.ID}`);
      return (await answer.json()) as Mail;
    }
    await pause(100);
  }
  throw new Error(`no mail to ${address} arrived`);
}

export async function mailsTo(mailbox: string, address: string): Promise<Listed[]> {
  const answer = await fetch(`${mailbox}/api/v1/search?query=${encodeURIComponent(`to:"${address}"`)}`);
  const { messages } = (await answer.json()) as { messages: Listed[] };
  return messages;
}

/** The link in a mail that leads to the server's own `/verify`. */
export function linkIn(mail: Mail): string {
  const link = /href="([^"]*\/auth\/v1\/verify[^"]*)"/.exec(mail.HTML)?.[1];
  if (link === undefined) throw new Error(`no link in ${mail.HTML}`);
  return link.replaceAll("&amp;", "&");
}

/** The code in a mail. */
export function codeIn(mail: Mail): string {
  const code = /\b(\d{6,10})\b/.exec(mail.Text)?.[1];
  if (code === undefined) throw new Error(`no code in ${mail.Text}`);
  return code;
}
