let retryAt = 0;

/** `fetch`, remembering until when the server asked us to wait, which the client library does not pass on. */
export const observedFetch: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (response.status === 429) {
    const seconds = Number(response.headers.get("Retry-After"));
    retryAt = Number.isFinite(seconds) && seconds > 0 ? Date.now() + seconds * 1000 : 0;
  }
  return response;
};

/** How long the last refused request has to wait still; `null` when the server did not say. */
export function retryAfterSeconds(): number | null {
  const seconds = Math.ceil((retryAt - Date.now()) / 1000);
  return seconds > 0 ? seconds : null;
}
