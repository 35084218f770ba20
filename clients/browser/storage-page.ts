// The page of an application that keeps files: the storage client as a user, as a visitor and as
// the service, and the AWS SDK as the user. The tests use them from within the page.
import { GetObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { createClient, type SupabaseClient } from "@supabase/supabase-js";

/** The settings of the page, from its address. */
const settings = new URLSearchParams(location.hash.slice(1));
const setting = (name: string): string => settings.get(name)!;

const auth = { persistSession: false, autoRefreshToken: false };
const storageOf = (key: string): SupabaseClient["storage"] => createClient(setting("url"), key, { auth }).storage;

/** Returns the data of a result that must not be an error. */
async function done<T>(result: PromiseLike<{ data: T | null; error: unknown }>): Promise<T> {
  const { data, error } = await result;
  if (error !== null) throw new Error(JSON.stringify(error));
  return data as T;
}

/** Returns the error of a result. One without a status means that the page may not read it. */
async function failed(result: PromiseLike<{ data: unknown; error: unknown }>): Promise<unknown> {
  const { name, message, status, statusCode } = (await result).error as Record<string, unknown>;
  return { name, message, status, statusCode };
}

/** Returns the content of an address, and the headers that the page may read. */
async function open(url: string): Promise<{ text: string; headers: Record<string, string> }> {
  const response = await fetch(url);
  return { text: await response.text(), headers: Object.fromEntries(response.headers) };
}

const page = {
  alice: createClient(setting("url"), setting("publishable"), { accessToken: () => Promise.resolve(setting("token")) }).storage,
  visitor: storageOf(setting("publishable")),
  service: storageOf(setting("secret")),
  s3: new S3Client({
    endpoint: `${setting("url")}/storage/v1/s3`,
    region: "local",
    forcePathStyle: true,
    credentials: { accessKeyId: "stub", secretAccessKey: setting("anon"), sessionToken: setting("token") },
  }),
  GetObjectCommand,
  PutObjectCommand,
  Upload,
  /** The folder of the user. */
  folder: setting("folder"),
  done,
  failed,
  open,
};

export type StoragePage = typeof page;

Object.assign(window, { storage: page });
