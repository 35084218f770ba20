let retryAt = 0;
let failedRequestId: string | null = null;

/**
 * Calls `fetch` and stores what the client library does not pass on: the `Retry-After` of a rate
 * limit, and the id of a request that failed on the server.
 */
export const observedFetch: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (response.status === 429) {
    const seconds = Number(response.headers.get("Retry-After"));
    retryAt = Number.isFinite(seconds) && seconds > 0 ? Date.now() + seconds * 1000 : 0;
  }
  if (response.status >= 500) failedRequestId = response.headers.get("X-Request-Id");
  return response;
};

/** Returns the id of the last request that failed on the server. */
export function lastFailedRequestId(): string | null {
  return failedRequestId;
}

/**
 * Returns the seconds until the last rejected request may be retried; `null` when the server did
 * not say.
 */
export function retryAfterSeconds(): number | null {
  const seconds = Math.ceil((retryAt - Date.now()) / 1000);
  return seconds > 0 ? seconds : null;
}
