import type { User } from "@supabase/supabase-js";
import type { AuthClient } from "../../../lib/auth/deferred-client";
import { avatarBucket, ownPictureFile, ownPictureUrl, providerPicture } from "../../../lib/avatar";
import { openBackend } from "../../../lib/backend";
import type { Config } from "../../../lib/config";

/** The caches keep a picture: a new one has another name. */
const cacheSeconds = "31536000";

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
  const file = `${randomId()}.${picture.type === "image/webp" ? "webp" : "jpg"}`;
  const { error } = await bucket.upload(`${user.id}/${file}`, picture, { contentType: picture.type, cacheControl: cacheSeconds });
  if (error) throw error;
  await refer(client, ownPictureUrl(config, user, file), file);
  await removeFile(account);
}

/** Removes the user's own picture. That of a provider shows again. */
export async function removePicture(account: Account): Promise<void> {
  await refer(account.client, providerPicture(account.user), null);
  await removeFile(account);
}

async function refer(client: AuthClient, avatar_url: string | null, portico_avatar: string | null): Promise<void> {
  const { error } = await client.updateUser({ data: { avatar_url, portico_avatar } });
  if (error) throw error;
}

/** Deletes the file that the account referred to before. On a failure the server does it later. */
async function removeFile(account: Account): Promise<void> {
  const file = ownPictureFile(account.user);
  if (file === null) return;
  const bucket = await openBucket(account);
  await bucket.remove([`${account.user.id}/${file}`]).catch(() => undefined);
}

/** Returns a random id of 36 characters. Pages without https have no `crypto.randomUUID`. */
function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(18));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
