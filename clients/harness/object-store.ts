// An S3 server that is not ours (moto, which `make setup` installs), as the place of the content.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface, type Interface } from "node:readline";

import { CreateBucketCommand, ListMultipartUploadsCommand, ListObjectsV2Command, S3Client } from "@aws-sdk/client-s3";

const PACKAGES = resolve(import.meta.dirname, "../../node_modules/.portico/moto");
/**
 * The program of the server. It ends with its input, so with the tests. Each line makes an object
 * older, since the store says when content was written.
 */
const PROGRAM = `import json, sys
from datetime import timedelta
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print('http://%s:%d' % server.get_host_and_port(), flush=True)
for line in sys.stdin:
    bucket, key, hours = json.loads(line)
    s3_backends[DEFAULT_ACCOUNT_ID]['aws'].get_object(bucket, key).last_modified -= timedelta(hours=hours)
    print('aged', flush=True)
`;
const BUCKET = "store";
const PREFIX = "project";

/** A store with one bucket. */
export class ObjectStore {
  readonly s3: S3Client;

  private constructor(
    private readonly child: ChildProcess,
    private readonly lines: Interface,
    private readonly url: string,
  ) {
    this.s3 = new S3Client({ endpoint: url, region: "us-east-1", forcePathStyle: true, credentials: { accessKeyId: "test", secretAccessKey: "test-secret" } });
  }

  static async start(): Promise<ObjectStore> {
    const child = spawn("python3", ["-c", PROGRAM], { env: { ...process.env, PYTHONPATH: PACKAGES }, stdio: ["pipe", "pipe", "ignore"] });
    const lines = createInterface(child.stdout);
    const ended = once(child, "exit").then(() => {
      throw new Error("moto is missing: `scripts/setup test` installs it");
    });
    const [url] = (await Promise.race([once(lines, "line"), ended])) as [string];
    const store = new ObjectStore(child, lines, url);
    await store.s3.send(new CreateBucketCommand({ Bucket: BUCKET }));
    return store;
  }

  /** The files of a project whose content is in this store. */
  get files(): Record<string, string> {
    const settings = { type: "s3", bucket: BUCKET, region: "us-east-1", endpoint: this.url, prefix: PREFIX, access_key_id: "test", secret_access_key: "env(STORE_SECRET)", part_size: "5MiB" };
    const lines = Object.entries(settings).map(([name, value]) => `${name} = ${JSON.stringify(value)}`);
    return { "supabase/portico.toml": `[storage.backend]\n${lines.join("\n")}\n`, "supabase/.env": "STORE_SECRET=test-secret\n" };
  }

  /** Returns bucket and key of a path below the project's prefix, for commands of the SDK. */
  at(path: string): { Bucket: string; Key: string } {
    return { Bucket: BUCKET, Key: `${PREFIX}/${path}` };
  }

  /** Returns the paths of all content below the project's prefix: `<bucket>/<name>/<version>`. */
  async paths(): Promise<string[]> {
    const { Contents = [] } = await this.s3.send(new ListObjectsV2Command({ Bucket: BUCKET }));
    return Contents.map(({ Key }) => Key!.replace(`${PREFIX}/`, "")).sort();
  }

  /** Returns the number of uploads in parts that are not complete. */
  async unfinished(): Promise<number> {
    return (await this.s3.send(new ListMultipartUploadsCommand({ Bucket: BUCKET }))).Uploads?.length ?? 0;
  }

  /** Makes an object older. */
  async age(path: string, hours: number): Promise<void> {
    const { Bucket, Key } = this.at(path);
    const aged = once(this.lines, "line");
    this.child.stdin!.write(`${JSON.stringify([Bucket, Key, hours])}\n`);
    await aged;
  }

  async dispose(): Promise<void> {
    const ended = once(this.child, "exit");
    this.child.stdin!.end();
    await ended;
  }
}
