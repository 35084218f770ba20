let retryAt = 0;

/** Calls `fetch` and stores the `Retry-After` of a rate limit, which the client library does not pass on. */
export const observedFetch: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (response.status === 429) {
    const seconds = Number(response.headers.get("Retry-After"));
    retryAt = Number.isFinite(seconds) && seconds > 0 ? Date.now() + seconds * 1000 : 0;
  }
  return response;
};

/** Returns the seconds until the last rejected request may be retried; `null` when the server did not say. */
export function retryAfterSeconds(): number | null {
  const seconds = Math.ceil((retryAt - Date.now()) / 1000);
  return seconds > 0 ? seconds : null;
}
