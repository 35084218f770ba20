import { screen, waitFor, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { internationalNumber, phoneField } from "./lib/form-fields";
import { ada, fakeServer, session } from "./testing/fake-server";
import { renderApp } from "./testing/render-app";

const patient = { timeout: 20_000 };
const phoneSettings = { body: { external: { google: true, email: true, phone: true } } };

test.each([
  ["+41 79 123 45 67", "+41791234567"],
  ["0041 (0)79-123.45.67", "+41791234567"],
  ["+1 (555) 000‑1234", "+15550001234"],
])("the international form of %s is %s", (input, expected) => {
  expect(internationalNumber(input)).toBe(expected);
  expect(phoneField.parse(input)).toBe(expected);
});

test.each([
  ["", "Enter your phone number."],
  ["079 123 45 67", "Start with the country code, such as +41 or +1."],
  ["+41", "This isn’t a valid phone number."],
  ["+0791234567", "This isn’t a valid phone number."],
])("the number %j is rejected: %s", (input, message) => {
  expect(phoneField.safeParse(input).error?.issues[0]?.message).toBe(message);
});

test("without phone sign-in there is no form for phone numbers", async () => {
  fakeServer();
  renderApp("/sign-in?with=phone");
  expect(await screen.findByLabelText("Email", {}, patient)).toBeVisible();
  expect(screen.queryByRole("link", { name: /phone/i })).toBeNull();
  expect(screen.queryByLabelText("Phone number")).toBeNull();
});

test("with phone sign-in alone the form for phone numbers shows at once", async () => {
  fakeServer({ "GET /auth/v1/settings": { body: { external: { google: false, email: false, phone: true } } } });
  renderApp("/sign-in");
  expect(await screen.findByLabelText("Phone number", {}, patient)).toBeVisible();
  expect(screen.queryByLabelText("Email")).toBeNull();
  expect(screen.queryByText("or")).toBeNull();
});

test("the form for phone numbers stays selected from sign-in to sign-up and back", async () => {
  fakeServer({ "GET /auth/v1/settings": phoneSettings });
  const { user } = renderApp("/sign-in?with=phone&next=/app/files");
  await user.click(await screen.findByRole("link", { name: "Create an account" }, patient));
  expect(await screen.findByRole("heading", { name: "Create your account" }, patient)).toBeVisible();
  expect(screen.getByLabelText("Phone number")).toBeVisible();
  expect(screen.getByLabelText("Email")).not.toBeVisible();
  const back = within(screen.getByRole("main")).getByRole("link", { name: "Sign in" });
  expect(back).toHaveAttribute("href", "/sign-in?next=%2Fapp%2Ffiles&with=phone");
});

test("a user signs in with a code from a text message", async () => {
  const server = fakeServer({
    "GET /auth/v1/settings": phoneSettings,
    "POST /auth/v1/otp": { body: {} },
    "POST /auth/v1/verify": ({ body }) =>
      body.token === "123456"
        ? { body: session({ user: { ...ada, email: "", phone: "41791234567", app_metadata: { provider: "phone" } } }) }
        : { status: 403, body: { code: "otp_expired", message: "Token has expired or is invalid" } },
  });
  const { user, beacons } = renderApp("/sign-in?next=/app/files");
  await user.type(await screen.findByLabelText("Email", {}, patient), "ada@");
  await user.click(await screen.findByRole("link", { name: "Use your phone number instead" }, patient));
  const number = await screen.findByLabelText("Phone number", {}, patient);
  expect(number).toHaveAttribute("autocomplete", "tel");
  await user.type(number, "079 123");
  await user.click(screen.getByRole("button", { name: "Text me a code" }));
  expect(await screen.findByText(/Start with the country code/, {}, patient)).toBeVisible();
  await waitFor(() => expect(number).toHaveFocus(), patient);

  // The input is kept on the way to the other form and back.
  await user.click(screen.getByRole("link", { name: "Use your email address instead" }));
  expect(screen.getByLabelText("Email")).toHaveValue("ada@");
  await user.click(await screen.findByRole("link", { name: "Use your phone number instead" }, patient));
  expect(screen.getByLabelText("Phone number")).toHaveValue("079 123");

  await user.clear(screen.getByLabelText("Phone number"));
  await user.type(screen.getByLabelText("Phone number"), "+41 79 123 45 67");
  await user.click(screen.getByRole("button", { name: "Text me a code" }));
  expect(await screen.findByRole("heading", { name: "Check your phone" }, patient)).toBeVisible();
  expect(screen.getByText("+41791234567")).toBeVisible();
  expect(screen.getByRole("button", { name: /Resend in \d+ s/ })).toBeDisabled();
  expect(screen.getByRole("link", { name: "Change number" })).toHaveAttribute("href", "/sign-in?next=%2Fapp%2Ffiles&with=phone");

  const code = screen.getByLabelText("Six-digit code");
  await user.click(code);
  await user.paste("999999");
  expect(await screen.findByText("This code is wrong or has expired.", {}, patient)).toBeVisible();
  expect(code).toHaveValue("999999");
  await user.clear(code);
  await user.paste("123456");
  await waitFor(() => expect(window.location.pathname).toBe("/app/files"), patient);
  const sent = server.seen.filter(({ method }) => method === "POST").map(({ path, body }) => [path, body.phone, body.create_user ?? body.type]);
  expect(sent.slice(0, 2)).toEqual([
    ["/auth/v1/otp", "+41791234567", false],
    ["/auth/v1/verify", "+41791234567", "sms"],
  ]);
  await waitFor(() => expect(beacons).toContainEqual(expect.objectContaining({ name: "sign_in", properties: { method: "phone" } })), patient);
});

test("an unknown number shows an alert with a link to sign-up, and is kept for the way back", async () => {
  let isKnown = false;
  const server = fakeServer({
    "GET /auth/v1/settings": phoneSettings,
    "POST /auth/v1/otp": ({ body }) =>
      isKnown || body.create_user === true
        ? { body: {} }
        : { status: 422, body: { code: "otp_disabled", message: "Signups not allowed for otp" } },
  });
  const { user } = renderApp("/sign-in?with=phone");
  await user.type(await screen.findByLabelText("Phone number", {}, patient), "+41 79 123 45 67");
  await user.click(screen.getByRole("button", { name: "Text me a code" }));
  expect(await screen.findByRole("alert", {}, patient)).toHaveTextContent("There is no account with +41 79 123 45 67.");
  expect(screen.getByRole("link", { name: "Create one" })).toHaveAttribute("href", "/sign-up?with=phone");
  isKnown = true;
  await user.click(screen.getByRole("button", { name: "Text me a code" }));
  await user.click(await screen.findByRole("link", { name: "Change number" }, patient));
  expect(await screen.findByLabelText("Phone number", {}, patient)).toHaveValue("+41791234567");
  expect(server.paths().filter((path) => path === "POST /auth/v1/otp")).toHaveLength(2);
});

test("an account is created with a number, and the gateway's rejection shows at the number", async () => {
  let isWorking = false;
  const server = fakeServer({
    "GET /auth/v1/settings": phoneSettings,
    "POST /auth/v1/otp": () => (isWorking ? { body: {} } : { status: 422, body: { code: "sms_send_failed", message: "no" } }),
  });
  const { user } = renderApp("/sign-up?with=phone");
  const number = await screen.findByLabelText("Phone number", {}, patient);
  await user.type(number, "+41791234567");
  await user.click(screen.getByRole("button", { name: "Text me a code" }));
  await waitFor(() => expect(number).toHaveAccessibleDescription(/couldn’t send the text message/), patient);
  isWorking = true;
  await user.click(screen.getByRole("button", { name: "Text me a code" }));
  expect(await screen.findByRole("heading", { name: "Check your phone" }, patient)).toBeVisible();
  expect(server.seen.filter(({ path }) => path === "/auth/v1/otp").map(({ body }) => body.create_user)).toEqual([true, true]);
});
