import type { User } from "@supabase/supabase-js";
import type { AuthClient } from "../../../lib/auth/deferred-client";
import { avatarBucket, isAddressOf, ownPictureFile, ownPictureUrl, pictureObject, providerPictures } from "../../../lib/avatar";
import { openBackend } from "../../../lib/backend";
import type { Config } from "../../../lib/config";
import { z } from "../../../lib/zod";

/** The errors of the storage client, as far as they are distinguished here. */
const storageErrorSchema = z.union([
  z.object({ name: z.literal("StorageUnknownError"), originalError: z.unknown() }),
  z.object({
    name: z.literal("StorageApiError"),
    message: z.string(),
    status: z.optional(z.number()),
    statusCode: z.optional(z.union([z.string(), z.number()])),
  }),
]);

/** A new picture has another address. A removed one ends in the caches within a day. */
const cacheSeconds = "86400";

interface Account {
  config: Config;
  client: AuthClient;
  user: User;
}

const openBucket = async ({ config, client }: Account) => (await openBackend(config, client)).storage.from(avatarBucket);

/**
 * Stores a picture and refers to it in the user's metadata, as `avatar_url` for apps. Of the steps,
 * only the last one changes what is shown. What is left of the others when one fails, the server
 * deletes.
 */
export async function storePicture(account: Account, picture: Blob): Promise<void> {
  const { config, client, user } = account;
  const bucket = await openBucket(account);
  let file: string;
  for (const names = freeNames(user); ; ) {
    file = `${String(names.pop())}.${picture.type === "image/webp" ? "webp" : "jpg"}?v=${randomVersion()}`;
    const { error } = await bucket.upload(pictureObject(user, file), picture, { contentType: picture.type, cacheControl: cacheSeconds });
    if (!error) break;
    // A change that was interrupted has left a picture of this name
    if (!isTaken(error) || names.length === 0) throw error;
  }
  await refer(client, { avatar_url: ownPictureUrl(config, user, file), portico_avatar: file });
  await removeFile(account);
}

/**
 * Removes the user's own picture. That of a provider shows again; one that an app has set stays.
 */
export async function removePicture(account: Account): Promise<void> {
  const { client, user } = account;
  const file = ownPictureFile(user);
  const isOwn = file === null || isAddressOf(user, file);
  await refer(client, { ...(isOwn && { avatar_url: providerPictures(user)[0] ?? null }), portico_avatar: null });
  await removeFile(account);
}

async function refer(client: AuthClient, data: { avatar_url?: string | null; portico_avatar: string | null }): Promise<void> {
  const { error } = await client.updateUser({ data });
  if (error) throw error;
}

/** Deletes the file that the account referred to before. On a failure the server does it later. */
async function removeFile(account: Account): Promise<void> {
  const file = ownPictureFile(account.user);
  if (file === null) return;
  try {
    await (await openBucket(account)).remove([pictureObject(account.user, file)]);
  } catch {
    // The change itself is complete.
  }
}

/**
 * Returns a failure as `describeError` knows it: the storage client has errors of its own, with the
 * status in the body and the failure of the network inside.
 */
export function knownError(error: unknown): unknown {
  const { data: known } = storageErrorSchema.safeParse(error);
  if (known === undefined) return error;
  if (known.name === "StorageUnknownError") return known.originalError;
  const status = Number(known.statusCode) || known.status;
  return { name: "ApiError", message: known.message, status, ...(status === 429 && { code: "too_many_requests" }) };
}

/** Returns true if an object of this name exists. */
function isTaken(error: unknown): boolean {
  const { data: known } = storageErrorSchema.safeParse(error);
  return known?.name === "StorageApiError" && known.statusCode === "409";
}

/**
 * Returns the names that a new picture can have, in random order: all that the server gives an
 * account, besides the one of the present picture.
 */
function freeNames(user: User): number[] {
  const present = ownPictureFile(user)?.split(".", 1)[0];
  const names = Array.from({ length: 8 }, (_, name) => ({ name, order: randomVersion() }));
  return names.filter(({ name }) => String(name) !== present).sort((one, other) => one.order.localeCompare(other.order)).map(({ name }) => name);
}

/** Returns 16 random digits. Pages without https have no `crypto.randomUUID`. */
function randomVersion(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
