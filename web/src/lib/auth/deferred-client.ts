import type { GoTrueClient } from "@supabase/auth-js";

/** The names of what answers later anyway. */
type Asynchronous = {
  [Name in keyof GoTrueClient]: GoTrueClient[Name] extends (...given: never[]) => Promise<unknown> ? Name : never;
}[keyof GoTrueClient];

/** The official client as pages use it: what they ask is asked as soon as its code is there. */
export type PageClient = Pick<GoTrueClient, Asynchronous>;

/** How long until a client that could not be loaded is tried again. */
const retryMs = 3000;

/**
 * The official client, whose code comes after the page's own: a form can be read and filled in before. `start` loads it,
 * again and again where it must, and so does the first question that a page asks.
 */
export function lateClient(open: () => Promise<GoTrueClient>) {
  let opening: Promise<GoTrueClient> | undefined;
  let tell: (client: GoTrueClient) => void = () => undefined;
  const opened = new Promise<GoTrueClient>((resolve) => (tell = resolve));

  function load(): Promise<GoTrueClient> {
    opening ??= open().then(
      (client) => {
        tell(client);
        return client;
      },
      (error: unknown) => {
        opening = undefined;
        throw error;
      },
    );
    return opening;
  }

  async function start(): Promise<void> {
    for (;;) {
      try {
        await load();
        return;
      } catch {
        await new Promise((again) => window.setTimeout(again, retryMs));
      }
    }
  }

  const ask =
    (name: string) =>
    async (...given: unknown[]): Promise<unknown> => {
      let client: GoTrueClient;
      try {
        client = await load();
      } catch (error) {
        // In the shape in which the client itself tells that nothing is reached.
        const message = error instanceof Error ? error.message : String(error);
        return { data: {}, error: Object.assign(new Error(message), { name: "AuthRetryableFetchError", status: 0 }) };
      }
      const method: unknown = Reflect.get(client, name);
      if (typeof method !== "function") throw new Error(`The client has no ${name}`);
      return Reflect.apply(method, client, given);
    };

  const client = new Proxy(
    {},
    {
      get: (own, name) => {
        // What is awaited itself is asked for `then`.
        if (typeof name !== "string" || name === "then" || name in own) return Reflect.get(own, name) as unknown;
        return ask(name);
      },
    },
    // Each of these methods is looked up in the client when it is called, so the type is the client's own.
  ) as PageClient;

  return { client, opened, start };
}
