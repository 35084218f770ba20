import { act, screen, waitFor, within } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { refetchMs } from "./features/mailbox/messages";
import { config, fakeServer } from "./testing/fake-server";
import { renderApp } from "./testing/render-app";

const patient = { timeout: 20_000 };
const development = { ...config, development: true, mailbox: "http://portico.test" };

/** Replaces the browser's `EventSource` by a stream whose events the test sends. */
class FakeStream extends EventTarget {
  static readonly CLOSED = 2;
  static opened: FakeStream[] = [];
  readyState = 0;
  constructor(readonly url: string) {
    super();
    FakeStream.opened.push(this);
  }
  send(event: string) {
    act(() => void this.dispatchEvent(new Event(event)));
  }
  close() {
    this.readyState = FakeStream.CLOSED;
  }
}

function fakeStreams(): FakeStream[] {
  FakeStream.opened = [];
  vi.stubGlobal("EventSource", FakeStream);
  return FakeStream.opened;
}

const mail = { ID: "m", To: [{ Address: "ada@portico.test" }], Subject: "Confirm", Created: "2026-11-01T10:00:00Z" };
const text = { id: "t", to: "41790000000", body: "Your code is 135790", provider: "", received_at: "2026-11-01T11:00:00Z" };

test("emails and text messages are listed together, and shown", async () => {
  fakeServer({
    "GET /api/v1/messages": { body: { total: 1, messages: [mail] } },
    "GET /portico/v1/texts": { body: { texts: [text] } },
    "GET /api/v1/message/m": { body: { ...mail, Date: mail.Created, HTML: '<p style="color:red">Hi</p>' } },
  });
  const { user } = renderApp("/mailbox", development);
  const list = await screen.findByRole("list", { name: "Messages" }, patient);
  await waitFor(() => expect(within(list).getAllByRole("button")).toHaveLength(2), patient);
  expect(screen.getByRole("article", { name: "Text message" })).toHaveTextContent("Your code is 135790");
  await user.click(within(list).getByRole("button", { name: /Confirm/ }));
  const frame = await screen.findByTitle("The message “Confirm”", {}, patient);
  expect(frame.getAttribute("sandbox")).not.toContain("allow-scripts");
  expect(frame.getAttribute("srcdoc")).toContain("Hi");
});

test("a new message appears with the mailbox's event, and the lists are not read in between", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const streams = fakeStreams();
  let messages: (typeof mail)[] = [];
  const server = fakeServer({
    "GET /api/v1/messages": () => ({ body: { total: messages.length, messages } }),
    "GET /portico/v1/texts": { body: { texts: [] } },
    "GET /api/v1/message/m": { body: { ...mail, Date: mail.Created, Text: "Hi" } },
  });
  const reads = () => server.paths().filter((path) => path.startsWith("GET /api/v1/messages")).length;
  const { unmount } = renderApp("/mailbox", development);
  await screen.findByText("No messages yet", {}, patient);
  expect(streams.map(({ url }) => url)).toEqual(["http://portico.test/api/v1/events"]);
  const [stream] = streams;
  stream?.send("open");
  await waitFor(() => expect(reads()).toBe(2));
  await act(() => vi.advanceTimersByTimeAsync(10 * refetchMs));
  expect(reads()).toBe(2);

  messages = [mail];
  stream?.send("mail");
  expect(await screen.findByRole("article", { name: "Confirm" }, patient)).toBeVisible();
  unmount();
  expect(stream?.readyState).toBe(FakeStream.CLOSED);
  vi.useRealTimers();
});

test("without a stream the lists are read at an interval, and the stream is opened again", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const streams = fakeStreams();
  const server = fakeServer({
    "GET /api/v1/messages": { body: { total: 0, messages: [] } },
    "GET /portico/v1/texts": { body: { texts: [] } },
  });
  const reads = () => server.paths().filter((path) => path.startsWith("GET /api/v1/messages")).length;
  const { unmount } = renderApp("/mailbox", development);
  await screen.findByText("No messages yet", {}, patient);
  const [stream] = streams;
  stream?.send("open");
  stream?.close();
  stream?.send("error");
  const before = reads();
  await act(() => vi.advanceTimersByTimeAsync(3 * refetchMs));
  expect(reads()).toBeGreaterThan(before);
  expect(streams).toHaveLength(2);
  unmount();
  vi.useRealTimers();
});
