// `portico user`: the accounts of a project from the command line; and the accounts of
// `[auth.users]`.
import { rm } from "node:fs/promises";
import { join } from "node:path";

import { afterEach, expect, test } from "vitest";

import { PASSWORD } from "../harness/accounts.ts";
import { sql } from "../harness/database.ts";
import { signInAtGoogle } from "../harness/google.ts";
import { type CommandResult, Portico, portico, projectFolder, write } from "../harness/portico.ts";

const running: Portico[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.dispose()));
});
const start = async (project: Parameters<typeof Portico.start>[0] = {}): Promise<Portico> => {
  const server = await Portico.start(project);
  running.push(server);
  return server;
};

type Account = Record<string, unknown> & { id: string; app_metadata: Record<string, unknown> };
/** Runs `portico user` in a folder. */
const user = (folder: string, args: string[], input = ""): Promise<CommandResult> => portico(["user", "--workdir", folder, ...args], { input });
const json = async (folder: string, args: string[], input = ""): Promise<Account> => {
  const { code, stdout, stderr } = await user(folder, ["--json", ...args], input);
  expect(stderr).not.toContain("error");
  expect(code).toBe(0);
  return JSON.parse(stdout) as Account;
};

test("accounts of a running server are added, changed and deleted", async () => {
  const server = await start();
  const { folder } = server;
  const signIn = (password: string): ReturnType<ReturnType<Portico["client"]>["auth"]["signInWithPassword"]> => server.client().auth.signInWithPassword({ email: "ada@portico.test", password });

  const added = await user(folder, ["add", "Ada@portico.test", "--password-stdin", "--user-metadata", '{"full_name": "Ada"}'], `${PASSWORD}\n`);
  expect(added).toMatchObject({ code: 0 });
  expect(added.stdout).toMatch(/^Added ada@portico\.test \([0-9a-f-]{36}\)\n$/);
  expect((await signIn(PASSWORD)).data.user).toMatchObject({ email: "ada@portico.test", user_metadata: { full_name: "Ada" } });
  expect((await user(folder, ["add", "ada@portico.test", "--no-password"])).stderr).toContain("A user with this email address has already been registered");
  expect((await user(folder, ["add", "eve@portico.test", "--password-stdin"], "abc")).stderr).toContain("Password should be at least 6 characters.");
  expect((await user(folder, ["add", "eve@portico.test"])).stderr).toContain("--password-stdin");
  await json(folder, ["add", "--phone", "+491700000001", "--no-password", "--unconfirmed"]);

  const table = await user(folder, ["list"]);
  expect(table.stdout.split("\n")[0]).toMatch(/^ {2}Account +│ Id +│ Created \(UTC\) +│ Last sign-in \(UTC\) +│ State$/);
  expect(table.stdout).toMatch(/\+491700000001 .*unconfirmed/);
  expect(table.stderr).toContain("2 of 2 accounts");
  const list = await json(folder, ["list", "--filter", "ada@"]);
  expect(list).toMatchObject({ total: 1, users: [{ email: "ada@portico.test" }] });

  const shown = await json(folder, ["show", "ada@portico.test"]);
  expect(await json(folder, ["show", shown.id])).toEqual(shown);
  expect((await user(folder, ["show", "ada@portico.test"])).stdout).toMatch(/Email {2}ada@portico\.test\n/);
  expect(await json(folder, ["show", "491700000001"])).toMatchObject({ phone: "491700000001" });

  await json(folder, ["set-password", "ada@portico.test", "--password-stdin"], `${PASSWORD} 2`);
  expect((await signIn(PASSWORD)).error).toMatchObject({ code: "invalid_credentials" });
  expect((await signIn(`${PASSWORD} 2`)).error).toBeNull();
  expect(await user(folder, ["ban", "ada@portico.test", "--for", "24h"])).toMatchObject({ code: 0 });
  expect((await signIn(`${PASSWORD} 2`)).error).toMatchObject({ code: "user_banned" });
  expect((await user(folder, ["ban", "ada@portico.test", "--for", "soon"])).stderr).toContain("invalid format for ban duration");
  expect((await json(folder, ["unban", "ada@portico.test"]))["banned_until"]).toBeUndefined();
  expect((await signIn(`${PASSWORD} 2`)).error).toBeNull();

  expect((await json(folder, ["make-operator", "ada@portico.test"])).app_metadata).toMatchObject({ role: "operator" });
  expect((await json(folder, ["make-operator", "--undo", "ada@portico.test"])).app_metadata).toEqual({ provider: "email", providers: ["email"] });

  expect(await user(folder, ["delete", "ada@portico.test"])).toMatchObject({ code: 0 });
  const gone = await user(folder, ["show", "ada@portico.test"]);
  expect(gone).toMatchObject({ code: 1, stderr: "error: User not found\n" });
  const log = await sql<{ actor: string; action: string }>(server.status.DB_URL, "select payload->>'actor_username' as actor, payload->>'action' as action from auth.audit_log_entries where payload->>'action' = 'user_deleted'");
  expect(log).toEqual([{ actor: "portico user", action: "user_deleted" }]);
});

test("the commands start the database of a stopped server", async () => {
  const first = await start();
  expect(await first.stop()).toBe(0);
  await json(first.folder, ["add", "ada@portico.test", "--password-stdin"], PASSWORD);
  expect(await json(first.folder, ["list"])).toMatchObject({ total: 1 });
  const second = await start({ folder: first.folder });
  expect((await second.client().auth.signInWithPassword({ email: "ada@portico.test", password: PASSWORD })).error).toBeNull();
  expect((await json(second.folder, ["--db-url", second.status.DB_URL, "show", "ada@portico.test"]))["email"]).toBe("ada@portico.test");
});

test("a folder without a database says how to get one", async () => {
  const folder = await projectFolder();
  const failed = await user(folder, ["list"]);
  expect(failed.code).toBe(1);
  expect(failed.stderr).toContain("portico dev");
  await rm(folder, { recursive: true });
});

const people = '[auth.users."Ada@portico.test"]\nname = "Ada Lovelace"\npassword = "ada"\napp_metadata = \'{"plan": "pro"}\'\n\n[auth.users."ben@portico.test"]\nconfirmed = false\n';

test("a production server has the commands, and no accounts of development", async () => {
  const server = await Portico.serve({ config: '[auth]\nsite_url = "https://app.portico.test"\n', files: { "supabase/portico.toml": people } });
  running.push(server);
  expect(server.log).toContain("[auth.users] in supabase/portico.toml has no effect here");
  expect(await json(server.folder, ["list"])).toMatchObject({ total: 0 });
  await json(server.folder, ["--data", join(server.folder, "portico-data"), "add", "ada@portico.test", "--password-stdin"], PASSWORD);
  expect(await server.stop()).toBe(0);
  expect(await json(server.folder, ["list"])).toMatchObject({ total: 1, users: [{ email: "ada@portico.test" }] });
});

test("accounts of [auth.users] exist from the start, also at Google", async () => {
  const first = await start({ files: { "supabase/portico.toml": people } });
  expect(first.log).toContain("Added the account ada@portico.test");
  const { data, error } = await first.client().auth.signInWithPassword({ email: "ada@portico.test", password: "ada" });
  expect(error).toBeNull();
  expect(data.user).toMatchObject({ user_metadata: { full_name: "Ada Lovelace" }, app_metadata: { plan: "pro" } });
  expect((await json(first.folder, ["show", "ben@portico.test"]))["email_confirmed_at"]).toBeUndefined();

  const member = first.client();
  const google = await member.auth.signInWithOAuth({ provider: "google", options: { skipBrowserRedirect: true } });
  const chooser = await fetch(google.data.url!);
  expect(await chooser.text()).toContain("ada@portico.test");
  const landed = await signInAtGoogle(google.data.url!, { name: "Ada Lovelace", email: "ada@portico.test" });
  expect(landed.href).not.toContain("error");

  // An account that exists is left alone, and a reset adds them again
  await json(first.folder, ["set-password", "ada@portico.test", "--password-stdin"], PASSWORD);
  expect(await first.stop()).toBe(0);
  const second = await start({ folder: first.folder });
  expect(second.log).not.toContain("Added the account");
  expect((await second.client().auth.signInWithPassword({ email: "ada@portico.test", password: PASSWORD })).error).toBeNull();
  expect(await portico(["db", "reset", "--workdir", second.folder])).toMatchObject({ code: 0 });
  expect((await second.client().auth.signInWithPassword({ email: "ada@portico.test", password: "ada" })).error).toBeNull();
});

test("an account of [auth.users] that cannot exist is named", async () => {
  const folder = await projectFolder({ files: { "supabase/portico.toml": '[auth.users."ada"]\npasword = "x"\nuser_metadata = "{"\n' } });
  const failed = await portico(["dev", "--workdir", folder]);
  expect(failed.code).toBe(1);
  expect(failed.stderr).toContain("auth.users.ada: expected an email address as the name of the table");
  expect(failed.stderr).toContain("did you mean auth.users.ada.password?");
  expect(failed.stderr).toContain("auth.users.ada.user_metadata: expected a JSON object in quotes");
  await write(folder, "supabase/portico.toml", "");
  await rm(folder, { recursive: true });
});
