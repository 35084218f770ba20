// One-time passwords as an authenticator app makes them (RFC 6238).
import { createHmac } from "node:crypto";

const STEP_SECONDS = 30;

/** Returns the number of the current step. */
export const currentStep = (): number => Math.floor(Date.now() / 1000 / STEP_SECONDS);

/** Returns the code of a step for a secret in Base32. */
export function oneTimePassword(secret: string, step = currentStep()): string {
  const message = Buffer.alloc(8);
  message.writeBigUInt64BE(BigInt(step));
  const digest = createHmac("sha1", decodeBase32(secret)).update(message).digest();
  const offset = digest[digest.length - 1]! & 15;
  return String((digest.readUInt32BE(offset) & 0x7fff_ffff) % 1_000_000).padStart(6, "0");
}

function decodeBase32(text: string): Buffer {
  const bits = Array.from(text, (character) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(character).toString(2).padStart(5, "0")).join("");
  const bytes = bits.match(/.{8}/g) ?? [];
  return Buffer.from(bytes.map((byte) => Number.parseInt(byte, 2)));
}
