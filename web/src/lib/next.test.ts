import { expect, test } from "vitest";
import { rememberNext, safeNext, takeRememberedNext } from "./next";
import { visitorAddress } from "./paths";

test.each([["/app"], ["/app/security"], ["/app?tab=files#top"]])("%s is an address to return to", (address) => {
  expect(safeNext(address)).toBe(address);
});

test.each([
  [null],
  [""],
  ["app"],
  ["//evil.test/app"],
  ["/\\evil.test/app"],
  ["https://evil.test/app"],
  ["javascript:alert(1)"],
  ["/app/../sign-in"],
  ["/application"],
  ["/\t/evil.test/app"],
  ["/sign-in"],
])("%s is not", (address) => {
  expect(safeNext(address)).toBeNull();
});

test("an address is remembered during the round trip to a provider, once", () => {
  rememberNext("/app/files");
  expect(takeRememberedNext()).toBe("/app/files");
  expect(takeRememberedNext()).toBeNull();
});

test("the account's own address is left out", () => {
  expect(visitorAddress("/sign-in", { next: "/app" })).toBe("/sign-in");
  expect(visitorAddress("/sign-in", { next: "/app/files?a=1" })).toBe("/sign-in?next=%2Fapp%2Ffiles%3Fa%3D1");
});
