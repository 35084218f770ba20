/** Returns true where the browser can create and use passkeys. */
export function supportsPasskeys(): boolean {
  // Browsers leave it out of pages without a secure connection.
  return "PublicKeyCredential" in window;
}

/**
 * Returns this page's address at a host name, when the page is open at the IP address of this
 * machine: a passkey belongs to a host name.
 */
export function addressForPasskeys(): string | null {
  const { hostname, href } = window.location;
  if (hostname !== "127.0.0.1" && hostname !== "[::1]") return null;
  const url = new URL(href);
  url.hostname = "localhost";
  return url.href;
}
