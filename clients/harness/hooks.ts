// A server for hooks, which verifies the signature of every call.
import { createServer, type Server } from "node:http";
import { randomBytes } from "node:crypto";
import type { AddressInfo } from "node:net";

import { Webhook } from "standardwebhooks";

export interface HookInput {
  metadata: { uuid: string; time: string; name: string; ip_address?: string };
  user?: { id: string; email: string; user_metadata: Record<string, unknown> };
  email_data?: Record<string, string>;
  claims?: Record<string, unknown>;
  authentication_method?: string;
  user_id?: string;
  valid?: boolean;
}

type Answer = (input: HookInput) => unknown;

/** A receiver that answers each hook by the name of its point. */
export class HookReceiver {
  /** The inputs of the calls whose signature is right, oldest first. */
  readonly inputs: HookInput[] = [];
  /** The errors of the verification. */
  readonly rejected: unknown[] = [];
  readonly answers = new Map<string, Answer>();
  private readonly server: Server;

  private constructor(readonly secrets: string[]) {
    const verifiers = secrets.map((secret) => new Webhook(secret));
    this.server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        const body = Buffer.concat(chunks).toString();
        let input: HookInput;
        try {
          // Every secret has signed, so that one can be replaced by the other
          for (const verifier of verifiers) verifier.verify(body, request.headers as Record<string, string>);
          input = JSON.parse(body) as HookInput;
        } catch (error) {
          this.rejected.push(error);
          response.writeHead(401).end();
          return;
        }
        this.inputs.push(input);
        const answer = this.answers.get(input.metadata.name)?.(input) ?? {};
        response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
      });
    });
  }

  static async start(secrets = [1, 2].map(() => `whsec_${randomBytes(32).toString("base64")}`)): Promise<HookReceiver> {
    const receiver = new HookReceiver(secrets);
    await new Promise<void>((done) => receiver.server.listen(0, "127.0.0.1", done));
    return receiver;
  }

  /** Returns the section of a hook for `config.toml`. */
  section(name: string, secrets = this.secrets): string {
    const { port } = this.server.address() as AddressInfo;
    return `[auth.hook.${name}]\nenabled = true\nuri = "http://127.0.0.1:${port}/hooks"\nsecrets = "${secrets.map((secret) => `v1,${secret}`).join("|")}"\n`;
  }

  /** Returns the inputs of one point. */
  of(name: string): HookInput[] {
    return this.inputs.filter((input) => input.metadata.name === name);
  }

  async dispose(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }
}
