// The project's database, as its owner: to make rows older, and to look at what is stored.
import { Client } from "pg";

/** Runs one statement. */
export async function sql<Row extends object>(url: string, text: string, values: unknown[] = []): Promise<Row[]> {
  const client = new Client({ connectionString: url });
  // A statement that fails rejects its promise. An error beside it, as when the server ends while
  // the connection is being closed, would end the process
  client.on("error", () => undefined);
  await client.connect();
  try {
    return (await client.query<Row>(text, values)).rows;
  } finally {
    await client.end();
  }
}

/** Makes every code and link that was sent to `email` two hours older. */
export async function ageEmailsTo(url: string, email: string): Promise<void> {
  const columns = ["confirmation_sent_at", "recovery_sent_at", "email_change_sent_at", "reauthentication_sent_at"];
  const aged = columns.map((column) => `${column} = ${column} - interval '2 hours'`).join(", ");
  await sql(url, `update auth.users set ${aged} where email = $1`, [email]);
  await sql(url, "update auth.one_time_tokens set created_at = created_at - interval '2 hours' where relates_to = $1", [email]);
}

/** Makes the sessions of `email` two days older. */
export async function ageSessionsOf(url: string, email: string): Promise<void> {
  await sql(url, "update auth.sessions set created_at = created_at - interval '2 days' where user_id = (select id from auth.users where email = $1)", [email]);
}
