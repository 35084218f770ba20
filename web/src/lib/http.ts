import { recordOf } from "./json";

let retryAt = 0;

/**
 * Calls `fetch` and keeps what the client libraries do not pass on: the `Retry-After` of a rate
 * limit, and the id of a request that failed on the server.
 */
export const observedFetch: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (response.status === 429) {
    const seconds = Number(response.headers.get("Retry-After"));
    retryAt = Number.isFinite(seconds) && seconds > 0 ? Date.now() + seconds * 1000 : 0;
  }
  return response.status >= 500 ? namingItsRequest(response) : response;
};

/**
 * Makes the request's id the message of the error that a client library creates for the response,
 * so that each error has its own id. The authentication client takes the message from the response
 * for most of these statuses, the other clients take it from the body.
 */
function namingItsRequest(response: Response): Response {
  const id = response.headers.get("X-Request-Id");
  if (id === null) return response;
  const message = `Request ${id} failed`;
  const body = async () => recordOf(await Response.prototype.json.call(response).catch(() => null));
  return Object.assign(response, { message, json: async () => ({ ...(await body()), message }) });
}

/**
 * Returns the seconds until the last rejected request may be retried; `null` when the server did
 * not say.
 */
export function retryAfterSeconds(): number | null {
  const seconds = Math.ceil((retryAt - Date.now()) / 1000);
  return seconds > 0 ? seconds : null;
}
