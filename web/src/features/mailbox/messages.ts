import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { z } from "../../lib/zod";

const addressSchema = z.object({ Name: z._default(z.string(), ""), Address: z._default(z.string(), "") });
const addressesSchema = z.pipe(
  z.nullish(z.array(addressSchema)),
  z.transform((list) => list ?? []),
);

const listSchema = z.object({
  total: z.number(),
  messages: z.array(
    z.object({
      ID: z.string(),
      Read: z._default(z.boolean(), false),
      From: z.nullish(addressSchema),
      To: addressesSchema,
      Subject: z.string(),
      Created: z.coerce.date(),
      Snippet: z._default(z.string(), ""),
    }),
  ),
});

const messageSchema = z.object({
  ID: z.string(),
  From: z.nullish(addressSchema),
  To: addressesSchema,
  Subject: z.string(),
  Date: z.coerce.date(),
  HTML: z._default(z.string(), ""),
  Text: z._default(z.string(), ""),
});

const textsSchema = z.object({
  texts: z.array(z.object({ id: z.string(), to: z.string(), body: z.string(), received_at: z.coerce.date() })),
});

export type TextMessage = z.infer<typeof textsSchema>["texts"][number];
export type EmailSummary = z.infer<typeof listSchema>["messages"][number];
export type Email = z.infer<typeof messageSchema>;

/** The key of the lists, which change while they are shown. Single messages do not. */
export const mailboxKey = ["mailbox", "lists"];
/** The interval of reading the lists while the mailbox sends no events. */
export const refetchMs = 5000;

/** The captured emails, newest first, from the API of Mailpit that the mailbox has. */
export const emailsQuery = (mailbox: string, isLive: boolean) =>
  queryOptions({
    queryKey: [...mailboxKey, "messages"],
    queryFn: async ({ signal }) => listSchema.parse(await read(mailbox, "/api/v1/messages?limit=100", signal)),
    refetchInterval: isLive ? false : refetchMs,
    placeholderData: keepPreviousData,
  });

/** The captured text messages, newest first. */
export const textsQuery = (mailbox: string, isLive: boolean) =>
  queryOptions({
    queryKey: [...mailboxKey, "texts"],
    queryFn: async ({ signal }) => textsSchema.parse(await read(mailbox, "/portico/v1/texts", signal)).texts,
    refetchInterval: isLive ? false : refetchMs,
    placeholderData: keepPreviousData,
  });

export const emailQuery = (mailbox: string, id: string) =>
  queryOptions({
    queryKey: ["mailbox", "message", id],
    queryFn: async ({ signal }) =>
      messageSchema.parse(await read(mailbox, `/api/v1/message/${encodeURIComponent(id)}`, signal)),
    staleTime: Infinity,
  });

export async function deleteMessages(mailbox: string): Promise<void> {
  for (const path of ["/api/v1/messages", "/portico/v1/texts"]) {
    const response = await fetch(mailbox + path, { method: "DELETE" });
    if (!response.ok) throw new Error(`The mailbox answered ${response.status}`);
  }
}

async function read(mailbox: string, path: string, signal: AbortSignal): Promise<unknown> {
  const response = await fetch(mailbox + path, { signal });
  if (!response.ok) throw new Error(`The mailbox answered ${response.status}`);
  return response.json();
}
