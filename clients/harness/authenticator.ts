// An authenticator in software, with one discoverable credential (ES256), for calls without a
// browser.
import { createHash, createSign, generateKeyPairSync, randomBytes } from "node:crypto";

const PRESENT_AND_VERIFIED = 0b0000_0101;
const HAS_CREDENTIAL = 0b0100_0000;

interface Credential {
  id: string;
  rawId: string;
  type: "public-key";
  clientExtensionResults: Record<string, never>;
}

interface RegistrationOptions {
  challenge: string;
  rp: { id?: string };
  user: { id: string };
}

interface RequestOptions {
  challenge: string;
  rpId?: string;
}

const encoded = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64url");
const sha256 = (bytes: Uint8Array | string): Buffer => createHash("sha256").update(bytes).digest();
/** The number of bytes of a CBOR byte string, in one byte or two. */
const byteString = (bytes: Uint8Array): Buffer =>
  Buffer.concat([bytes.length < 256 ? Buffer.from([0x58, bytes.length]) : Buffer.from([0x59, bytes.length >> 8, bytes.length & 0xff]), bytes]);
const text = (value: string): Buffer => Buffer.concat([Buffer.from([0x60 + value.length]), Buffer.from(value)]);

export class SoftwareAuthenticator {
  private readonly keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
  private readonly id = randomBytes(32);
  private userHandle = "";

  constructor(private readonly origin: string) {}

  /** Answers `navigator.credentials.create()`, as JSON. */
  create(options: RegistrationOptions): Credential & { response: { clientDataJSON: string; attestationObject: string; authenticatorData: string; publicKeyAlgorithm: number; transports: "internal"[] } } {
    this.userHandle = options.user.id;
    const { x, y } = this.keys.publicKey.export({ format: "jwk" });
    const publicKey = Buffer.concat([
      // {1: 2 (EC2), 3: -7 (ES256), -1: 1 (P-256), -2: x, -3: y}
      Buffer.from([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21]),
      byteString(Buffer.from(x!, "base64url")),
      Buffer.from([0x22]),
      byteString(Buffer.from(y!, "base64url")),
    ]);
    const credential = Buffer.concat([Buffer.alloc(16), Buffer.from([0, this.id.length]), this.id, publicKey]);
    const data = Buffer.concat([this.data(options.rp.id, PRESENT_AND_VERIFIED | HAS_CREDENTIAL), credential]);
    const attestation = Buffer.concat([Buffer.from([0xa3]), text("fmt"), text("none"), text("attStmt"), Buffer.from([0xa0]), text("authData"), byteString(data)]);
    const clientDataJSON = encoded(this.clientData("webauthn.create", options.challenge));
    return {
      ...this.credential(),
      response: { clientDataJSON, attestationObject: encoded(attestation), authenticatorData: encoded(data), publicKeyAlgorithm: -7, transports: ["internal"] },
    };
  }

  /** Answers `navigator.credentials.get()`, as JSON. */
  get(options: RequestOptions): Credential & { response: { clientDataJSON: string; authenticatorData: string; signature: string; userHandle: string } } {
    const clientData = this.clientData("webauthn.get", options.challenge);
    const data = this.data(options.rpId, PRESENT_AND_VERIFIED);
    const signature = createSign("SHA256").update(data).update(sha256(clientData)).sign(this.keys.privateKey);
    return {
      ...this.credential(),
      response: { clientDataJSON: encoded(clientData), authenticatorData: encoded(data), signature: encoded(signature), userHandle: this.userHandle },
    };
  }

  private credential(): Credential {
    return { id: encoded(this.id), rawId: encoded(this.id), type: "public-key", clientExtensionResults: {} };
  }

  private clientData(type: string, challenge: string): Buffer {
    return Buffer.from(JSON.stringify({ type, challenge, origin: this.origin, crossOrigin: false }));
  }

  /**
   * Returns the authenticator data: the hash of the relying party, the flags, and a counter that it
   * does not keep.
   */
  private data(rpId: string | undefined, flags: number): Buffer {
    return Buffer.concat([sha256(rpId ?? ""), Buffer.from([flags]), Buffer.alloc(4)]);
  }
}
