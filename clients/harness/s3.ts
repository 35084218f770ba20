// A server with the S3 endpoint, and clients of the AWS SDK: the service and users.
import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3";

import { signedUp } from "./accounts.ts";
import { Portico } from "./portico.ts";
import { OWN_FOLDERS } from "./storage.ts";

/** A user that signs with its access token as the session token. */
export interface S3User {
  s3: S3Client;
  id: string;
  token: string;
}

export interface S3Server {
  portico: Portico;
  /** The client with the published access key. */
  s3: S3Client;
  alice: S3User;
}

export const s3ClientOf = (portico: Portico, credentials: { accessKeyId: string; secretAccessKey: string; sessionToken?: string }): S3Client =>
  new S3Client({ endpoint: portico.status.STORAGE_S3_URL, region: portico.status.S3_PROTOCOL_REGION, forcePathStyle: true, credentials });

/** Starts a server with this `config.toml`, with the private bucket `files`. */
export async function startS3(config = ""): Promise<S3Server> {
  const portico = await Portico.start({ config, files: OWN_FOLDERS });
  const { S3_PROTOCOL_ACCESS_KEY_ID: accessKeyId, S3_PROTOCOL_ACCESS_KEY_SECRET: secretAccessKey } = portico.status;
  const s3 = s3ClientOf(portico, { accessKeyId, secretAccessKey });
  await s3.send(new CreateBucketCommand({ Bucket: "files" }));
  return { portico, s3, alice: await s3User(portico) };
}

/** Signs up a user. */
export async function s3User(portico: Portico): Promise<S3User> {
  const { client, id } = await signedUp(portico);
  const { access_token: token } = (await client.auth.getSession()).data.session!;
  return { s3: s3ClientOf(portico, { accessKeyId: "stub", secretAccessKey: portico.status.ANON_KEY, sessionToken: token }), id, token };
}
