// `signInWithWeb3`, with wallets of Ethereum and Solana.
import bs58 from "bs58";
import nacl from "tweetnacl";
import { createSiweMessage, type CreateSiweMessageParameters } from "viem/siwe";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, expect, test } from "vitest";

import { claims } from "../harness/accounts.ts";
import { AuthEvents } from "../harness/events.ts";
import { Portico } from "../harness/portico.ts";

const SITE = "https://app.portico.test";

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: `[auth]\nsite_url = "${SITE}"\n[auth.web3.ethereum]\nenabled = true\n[auth.web3.solana]\nenabled = true\n[auth.rate_limit]\nweb3 = 1000\n` });
});
afterAll(() => portico.dispose());

const wallet = (): ReturnType<typeof privateKeyToAccount> => privateKeyToAccount(generatePrivateKey());

const ethereumMessage = (address: `0x${string}`, own: Partial<CreateSiweMessageParameters> = {}): string =>
  createSiweMessage({ address, chainId: 1, domain: new URL(SITE).host, nonce: "abcdef123456", uri: `${SITE}/sign-in`, version: "1", issuedAt: new Date(), statement: "Sign in to the example", ...own });

test("a wallet of Ethereum signs up, and in again", async () => {
  const account = wallet();
  const client = portico.client();
  const events = new AuthEvents(client);
  const message = ethereumMessage(account.address, { resources: ["https://app.portico.test/terms"] });
  const { data, error } = await client.auth.signInWithWeb3({ chain: "ethereum", message, signature: await account.signMessage({ message }) });
  expect(error).toBeNull();
  expect((await events.waitFor("SIGNED_IN"))?.user.id).toBe(data.user?.id);
  events.end();
  expect(data.user?.user_metadata).toMatchObject({ sub: `web3:ethereum:${account.address}`, custom_claims: { address: account.address, chain: "ethereum", network: "1", domain: "app.portico.test", statement: "Sign in to the example" } });
  expect(await claims(client)).toMatchObject({ sub: data.user?.id, amr: [{ method: "web3" }], email: "" });
  expect((await client.auth.refreshSession()).error).toBeNull();

  const later = ethereumMessage(account.address);
  const again = await portico.client().auth.signInWithWeb3({ chain: "ethereum", message: later, signature: await account.signMessage({ message: later }) });
  expect(again.data.user?.id).toBe(data.user?.id);
});

test("the client's own message, signed by an injected wallet, is accepted", async () => {
  const account = wallet();
  const provider = {
    request: async ({ method, params }: { method: string; params?: unknown[] }): Promise<unknown> => {
      if (method === "eth_requestAccounts") return [account.address];
      if (method === "eth_chainId") return "0x1";
      if (method === "personal_sign") return account.signMessage({ message: { raw: params?.[0] as `0x${string}` } });
      throw new Error(method);
    },
    on: () => undefined,
    removeListener: () => undefined,
  };
  const { data, error } = await portico.client().auth.signInWithWeb3({ chain: "ethereum", wallet: provider as never, statement: "Welcome", options: { url: `${SITE}/` } });
  expect(error).toBeNull();
  expect(data.user?.app_metadata).toMatchObject({ provider: "web3" });
});

test("a wallet of Solana signs up, and in again", async () => {
  const keys = nacl.sign.keyPair();
  const address = bs58.encode(keys.publicKey);
  const message = [`app.portico.test wants you to sign in with your Solana account:`, address, "", `URI: ${SITE}/`, "Version: 1", "Chain ID: solana:devnet", `Issued At: ${new Date().toISOString()}`].join("\n");
  const signature = nacl.sign.detached(new TextEncoder().encode(message), keys.secretKey);
  const first = await portico.client().auth.signInWithWeb3({ chain: "solana", message, signature });
  expect(first.error).toBeNull();
  expect(first.data.user?.user_metadata).toMatchObject({ sub: `web3:solana:${address}`, custom_claims: { network: "solana:devnet", statement: "" } });
  const again = await portico.client().auth.signInWithWeb3({ chain: "solana", message, signature });
  expect(again.data.user?.id).toBe(first.data.user?.id);

  const forged = new Uint8Array(signature);
  forged[3]! ^= 1;
  const refused = await portico.client().auth.signInWithWeb3({ chain: "solana", message, signature: forged });
  expect(refused.error).toMatchObject({ status: 400, message: "Signature does not match address in message" });
});

test("a message that proves nothing here is rejected", async () => {
  const account = wallet();
  const minutes = (count: number): Date => new Date(Date.now() + count * 60_000);
  const cases: [string, Partial<CreateSiweMessageParameters>][] = [
    ["Signed Ethereum message is using URI which is not allowed on this server, message was signed for another app", { uri: "https://other.test/", domain: "other.test" }],
    ["Signed Ethereum message is using a Domain that does not match the one in URI which is not allowed on this server", { domain: "other.test" }],
    ["Signed Ethereum message becomes valid in the future", { notBefore: minutes(1) }],
    ["Signed Ethereum message is expired", { issuedAt: minutes(-5), expirationTime: minutes(-1) }],
    ["Ethereum message was issued too long ago", { issuedAt: minutes(-11) }],
    ["Ethereum message was issued too far in the future", { issuedAt: minutes(11) }],
  ];
  for (const [description, own] of cases) {
    const message = ethereumMessage(account.address, own);
    const { data, error } = await portico.client().auth.signInWithWeb3({ chain: "ethereum", message, signature: await account.signMessage({ message }) });
    expect(error, description).toMatchObject({ status: 400, message: description });
    expect(data.session).toBeNull();
  }
  const message = ethereumMessage(account.address);
  const stranger = await portico.client().auth.signInWithWeb3({ chain: "ethereum", message, signature: await wallet().signMessage({ message }) });
  expect(stranger.error).toMatchObject({ status: 400, message: "Signature does not match address in message" });
});

test("a message with other line ends, version or chain is rejected", async () => {
  const account = wallet();
  const sent = async (message: string): Promise<unknown> => (await portico.client().auth.signInWithWeb3({ chain: "ethereum", message, signature: await account.signMessage({ message }) })).error;
  const message = ethereumMessage(account.address);
  expect(await sent(message.replaceAll("\n", "\r\n"))).toMatchObject({ code: "validation_failed", message: 'siwe: message first line does not end in " wants you to sign in with your Ethereum account:"' });
  expect(await sent(message.replace("Version: 1", "Version: 2"))).toMatchObject({ code: "validation_failed", message: 'siwe: Version value is not supported, expected 1 got "2"' });
  expect(await sent(message.replace("Chain ID: 1", "Chain ID: x"))).toMatchObject({ code: "validation_failed", message: "siwe: Chain ID is not valid" });
});

test("without a chain in the configuration it is switched off", async () => {
  const closed = await Portico.start();
  try {
    const account = wallet();
    const message = ethereumMessage(account.address);
    const { error } = await closed.client().auth.signInWithWeb3({ chain: "ethereum", message, signature: await account.signMessage({ message }) });
    expect(error).toMatchObject({ status: 422, code: "web3_provider_disabled" });
  } finally {
    await closed.dispose();
  }
});
