// The authentication events of a client.
import type { AuthChangeEvent, Session, SupabaseClient } from "@supabase/supabase-js";

export class AuthEvents {
  readonly seen: { event: AuthChangeEvent; session: Session | null }[] = [];
  private readonly subscription: { unsubscribe(): void };

  constructor(client: SupabaseClient) {
    const { data } = client.auth.onAuthStateChange((event, session) => {
      this.seen.push({ event, session });
    });
    this.subscription = data.subscription;
  }

  get names(): AuthChangeEvent[] {
    return this.seen.map(({ event }) => event);
  }

  /** Waits for `event`, and returns its session. */
  async waitFor(event: AuthChangeEvent): Promise<Session | null> {
    for (let attempt = 0; attempt < 600; attempt += 1) {
      const found = this.seen.find((seen) => seen.event === event);
      if (found !== undefined) return found.session;
      await new Promise((done) => setTimeout(done, 100));
    }
    throw new Error(`${event} was not emitted, but: ${this.names.join(", ")}`);
  }

  end(): void {
    this.subscription.unsubscribe();
  }
}
