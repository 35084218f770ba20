import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { z } from "../../lib/zod";

const addressSchema = z.object({ Name: z.string().default(""), Address: z.string().default("") });
const addressesSchema = z
  .array(addressSchema)
  .nullish()
  .transform((list) => list ?? []);

const listSchema = z.object({
  total: z.number(),
  messages: z.array(
    z.object({
      ID: z.string(),
      Read: z.boolean().default(false),
      From: addressSchema.nullish(),
      To: addressesSchema,
      Subject: z.string(),
      Created: z.coerce.date(),
      Snippet: z.string().default(""),
    }),
  ),
});

const messageSchema = z.object({
  ID: z.string(),
  From: addressSchema.nullish(),
  To: addressesSchema,
  Subject: z.string(),
  Date: z.coerce.date(),
  HTML: z.string().default(""),
  Text: z.string().default(""),
});

export type Summary = z.infer<typeof listSchema>["messages"][number];
export type Message = z.infer<typeof messageSchema>;

/** The captured messages, newest first, as the capture's own API (that of Mailpit) tells them; asked again while open. */
export const messagesQuery = (mailbox: string) =>
  queryOptions({
    queryKey: ["mailbox", "messages"],
    queryFn: async ({ signal }) => listSchema.parse(await read(mailbox, "/api/v1/messages?limit=100", signal)),
    refetchInterval: 2000,
    placeholderData: keepPreviousData,
  });

export const messageQuery = (mailbox: string, id: string) =>
  queryOptions({
    queryKey: ["mailbox", "message", id],
    queryFn: async ({ signal }) =>
      messageSchema.parse(await read(mailbox, `/api/v1/message/${encodeURIComponent(id)}`, signal)),
    staleTime: Infinity,
  });

export async function deleteMessages(mailbox: string): Promise<void> {
  const response = await fetch(`${mailbox}/api/v1/messages`, { method: "DELETE" });
  if (!response.ok) throw new Error(`The mailbox answered ${response.status}`);
}

async function read(mailbox: string, path: string, signal: AbortSignal): Promise<unknown> {
  const response = await fetch(mailbox + path, { signal });
  if (!response.ok) throw new Error(`The mailbox answered ${response.status}`);
  return response.json();
}
